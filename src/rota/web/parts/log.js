// The tail of a task's output, live; the server searches earlier output. Vue sets all text, and so escapes it.
const MAX_LINES = 5000;
const MAX_LINE = 65536;
export default {
  template: `
    <div class="log">
      <div class="log-tools">
        <input class="log-search" type="search" v-model="sought" placeholder="Search output" aria-label="Search output">
        <span class="muted" role="status">{{ summary }}</span>
        <label class="log-follow"><input type="checkbox" v-model="following"> Follow</label>
      </div>
      <div ref="box" class="log-box" tabindex="0" role="log" aria-label="Output" @scroll="scrolled">
        <div v-if="!lines.length" class="muted log-nothing">{{ placeholder }}</div>
        <div v-for="line in shown" :key="line[0]" class="log-line"><template v-for="(part, at) in parts(line[1])"
          ><mark v-if="at % 2">{{ part }}</mark><template v-else>{{ part }}</template></template></div>
      </div>
    </div>`,
  props: { placeholder: String },
  emits: ["sought"],
  data() {
    return { lines: [], sought: "", found: null, asking: 0, following: true, next: 0, open: "" };
  },
  computed: {
    loaded() {
      const sought = this.sought.toLowerCase();
      return sought ? this.lines.filter((line) => line[1].toLowerCase().includes(sought)) : this.lines;
    },
    newer() {
      const last = this.open ? this.next - 1 : -1;
      return this.loaded.filter((line) => line[2] > this.found.until || line[0] === last);
    },
    shown() {
      return (this.found ? [...this.found.lines, ...this.newer] : this.loaded).slice(-2000);
    },
    summary() {
      if (!this.sought) return `${this.lines.length.toLocaleString()} lines`;
      if (!this.found) return "Searching …";
      return `${(this.found.total + this.newer.length).toLocaleString()} matching lines in the entire output`;
    },
  },
  watch: {
    sought() {
      this.ask();
    },
  },
  unmounted() {
    clearTimeout(this.asking);
  },
  updated() {
    if (this.following) this.$refs.box.scrollTop = this.$refs.box.scrollHeight;
  },
  methods: {
    ask() {
      this.found = null;
      clearTimeout(this.asking);
      if (this.sought) this.asking = setTimeout(() => this.$emit("sought", this.sought), 300);
    },
    answer(sought, lines, total, until) {
      if (sought === this.sought) this.found = { lines: lines.map((line, at) => [`found-${at}`, line, 0]), total, until };
    },
    add(text, end) {
      if (!text) return;
      const pieces = (this.open + text).split("\n");
      if (this.open && this.lines.length) this.lines.pop();
      if (!pieces[pieces.length - 1]) pieces.pop();
      const shown = pieces.map((piece) => piece.slice(piece.lastIndexOf("\r", piece.length - 2) + 1).slice(-MAX_LINE));
      this.open = text.endsWith("\n") ? "" : shown[shown.length - 1];
      for (const piece of shown) this.lines.push([this.next++, piece, end]);
      if (this.lines.length > MAX_LINES) this.lines.splice(0, this.lines.length - MAX_LINES);
    },
    reset() {
      this.lines = [];
      this.open = "";
      this.ask();
    },
    scrolled() {
      const box = this.$refs.box;
      if (box.scrollHeight - box.scrollTop - box.clientHeight > 40) this.following = false;
    },
    parts(text) {
      if (!this.sought) return [text];
      const sought = this.sought.toLowerCase(), lower = text.toLowerCase(), found = [];
      let at = 0, hit;
      while ((hit = lower.indexOf(sought, at)) >= 0) {
        found.push(text.slice(at, hit), text.slice(hit, hit + sought.length));
        at = hit + sought.length;
      }
      return [...found, text.slice(at)];
    },
  },
};
