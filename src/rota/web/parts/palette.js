// The search box over everything. Vue sets all text, and so escapes it.
const WAIT_MS = 120;
export default {
  template: `
    <div class="palette">
      <button type="button" class="palette-open" @click="open" aria-keyshortcuts="Control+K /" aria-haspopup="dialog">
        <span>Search</span><kbd aria-hidden="true">Ctrl K</kbd>
      </button>
      <dialog ref="box" class="palette-box" aria-label="Search" @click.self="close">
        <div class="palette-inside">
          <input ref="input" class="palette-text" role="combobox" aria-expanded="true" aria-controls="palette-list"
            aria-autocomplete="list" :aria-activedescendant="found.length ? 'palette-' + at : null"
            aria-label="Search jobs and their output, sweeps, templates, nodes, tenants and pages" autocomplete="off" spellcheck="false"
            maxlength="128" placeholder="Jobs and their output, sweeps, pages, …" v-model="text" @input="later" @keydown="key">
          <ul id="palette-list" class="palette-list" role="listbox" aria-label="Found">
            <li v-for="(each, index) in found" :key="each.target + index" :id="'palette-' + index" role="option"
              :aria-selected="index === at ? 'true' : 'false'" class="palette-item" @mousemove="at = index" @click="go(index)">
              <span class="palette-kind">{{ each.kind }}</span><span class="ellipsis">{{ each.title }}</span>
              <span class="muted ellipsis palette-about">{{ each.about }}</span>
            </li>
          </ul>
          <p class="palette-note muted" role="status">{{ note }}</p>
        </div>
      </dialog>
    </div>`,
  emits: ["ask"],
  data: () => ({ text: "", found: [], at: 0, asked: 0, shown: 0, timer: null }),
  computed: {
    note() {
      if (this.found.length) return `${this.found.length} found. Arrows select, Enter opens, Escape closes.`;
      return this.shown < this.asked ? "Searching …" : "Nothing found.";
    },
  },
  mounted() {
    this.onKey = (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
      const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
      if ((event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && plain && !typing)) {
        event.preventDefault();
        this.open();
      }
    };
    document.addEventListener("keydown", this.onKey);
  },
  unmounted() { document.removeEventListener("keydown", this.onKey); },
  methods: {
    open() {
      if (this.$refs.box.open) return;
      this.$refs.box.showModal();
      this.$refs.input.select();
      this.ask();
    },
    close() { this.$refs.box.close(); },
    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => { this.timer = null; this.ask(); }, WAIT_MS);
    },
    ask() { this.$emit("ask", { text: this.text, number: ++this.asked }); },
    show(number, found) {
      if (number !== this.asked) return;
      this.shown = number;
      this.found = found;
      this.at = 0;
      if (this.goes) { this.goes = false; this.go(0); }
    },
    key(event) {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const step = event.key === "ArrowDown" ? 1 : this.found.length - 1;
        if (this.found.length) this.at = (this.at + step) % this.found.length;
        this.$nextTick(() => document.getElementById("palette-" + this.at)?.scrollIntoView({ block: "nearest" }));
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (this.timer !== null || this.shown < this.asked) { // what is shown is of an older text
          clearTimeout(this.timer);
          this.timer = null;
          this.goes = true;
          this.ask();
        } else this.go(this.at);
      }
    },
    go(index) {
      if (this.found[index]) window.location.href = this.found[index].target;
    },
  },
};
