// Devices as rows, time from left to right, the queue below. Text is drawn, and so can't be markup.
const AXIS = 22, GAP = 6, QUEUE_ROW = 9, TITLE = 18, LEAST_MS = 5000, WAIT_MS = 250;
export default {
  template: `
    <div class="cluster-chart">
      <div class="chart-tools" role="group" aria-label="Window">
        <button type="button" aria-label="Earlier" title="Earlier" @click="shift(-0.5)">◀</button>
        <button type="button" aria-label="Later" title="Later" @click="shift(0.5)">▶</button>
        <button type="button" aria-label="Zoom in" title="Zoom in" @click="zoom(0.5)">+</button>
        <button type="button" aria-label="Zoom out" title="Zoom out" @click="zoom(2)">−</button>
        <button type="button" @click="now">Now</button>
      </div>
      <canvas ref="canvas" role="img" :aria-label="data ? data.label : 'Timeline'"
        @pointerdown="down" @pointermove="move" @pointerup="up" @pointercancel="up" @pointerleave="leave"
        @dblclick="dive" @wheel="wheel"></canvas>
      <div v-if="tip" class="chart-hint" aria-hidden="true" :style="{left: tip.x + 'px', top: tip.y + 'px'}">
        <strong>{{ tip.title }}</strong><span>{{ tip.about }}</span>
      </div>
    </div>`,
  props: { data: Object },
  emits: ["moved"],
  data: () => ({ tip: null }),
  // data of an older window, which was on its way when the user moved on, is not drawn
  watch: { data() { if (!this.points.size && !this.timer && this.data.asked === this.asked) this.take(); } },
  created() { this.points = new Map(); this.timer = null; this.boxes = []; this.asked = 0; },
  mounted() {
    this.take();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.$el);
    this.theme = new MutationObserver(() => this.draw());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  },
  unmounted() { this.watcher.disconnect(); this.theme.disconnect(); clearTimeout(this.timer); },
  methods: {
    take() {
      if (!this.data) return;
      this.from = this.data.from;
      this.to = this.data.to;
      this.draw();
    },
    left() { return this.$el.clientWidth < 560 ? 54 : 92; },
    x(at) { return this.left() + (at - this.from) / (this.to - this.from) * (this.$el.clientWidth - this.left()); },
    time(x) { return this.from + (x - this.left()) / (this.$el.clientWidth - this.left()) * (this.to - this.from); },
    draw() {
      const data = this.data, canvas = this.$refs.canvas;
      if (!data || !canvas) return;
      const style = getComputedStyle(document.body);
      const colour = (name) => style.getPropertyValue("--" + (name === "other" ? "idle" : name)).trim();
      const devices = data.nodes.reduce((sum, node) => sum + node.devices, 0);
      const lane = Math.max(3, Math.min(14, Math.floor(560 / Math.max(devices, 1))));
      const rows = data.waits.reduce((most, wait) => Math.max(most, wait[0] + 1), 0);
      const tops = [];
      let y = AXIS;
      for (const node of data.nodes) { tops.push(y); y += node.devices * lane + GAP; }
      const queue = y + TITLE;
      const height = queue + Math.max(rows, 1) * QUEUE_ROW + 4, width = this.$el.clientWidth, ratio = devicePixelRatio || 1;
      canvas.width = width * ratio; canvas.height = height * ratio;
      canvas.style.height = height + "px";
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.clearRect(0, 0, width, height);
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      const left = this.left(), text = colour("muted"), line = colour("line");
      this.ticks(pen, left, width, queue - TITLE, height, text, line);
      pen.textAlign = "left";
      data.nodes.forEach((node, index) => {
        const size = node.devices * lane;
        pen.fillStyle = colour("hover");
        pen.fillRect(left, tops[index], width - left, size);
        pen.fillStyle = text;
        pen.fillText(this.fit(pen, node.id, left - 6), 0, tops[index] + size / 2);
      });
      pen.fillStyle = text;
      pen.fillText("Queue", 0, queue - TITLE / 2);
      this.boxes = [];
      pen.save();
      pen.beginPath();
      pen.rect(left, 0, width - left, height);
      pen.clip();
      for (const [row, first, count, milli, start, end, paint, job, title] of data.bars) {
        const x = this.x(start), size = Math.max(this.x(end ?? Math.max(data.now, this.to)) - x, 1.5);
        const full = count * lane - 1, part = Math.max(full * milli / 1000, 2);
        this.box(pen, x, tops[row] + first * lane + 0.5 + full - part, size, part, colour(paint), job, title,
          `${count} device${count > 1 ? "s" : ""}${milli < 1000 ? ` at ${milli / 10} %` : ""} of ${data.nodes[row].id}`, start, end);
      }
      pen.globalAlpha = 0.75;
      for (const [row, start, end, paint, job, title] of data.waits) {
        const x = this.x(start), size = Math.max(this.x(end ?? data.now) - x, 1.5);
        this.box(pen, x, queue + row * QUEUE_ROW + 1, size, QUEUE_ROW - 2, colour(paint), job, title, "waiting", start, end);
      }
      pen.globalAlpha = 1;
      pen.fillStyle = colour("grave");
      pen.fillRect(this.x(data.now), AXIS - 4, 1, height);
      pen.restore();
    },
    box(pen, x, y, width, height, paint, job, title, about, start, end) {
      if (x + width < this.left() || x > this.$el.clientWidth) return;
      pen.fillStyle = paint;
      pen.fillRect(x, y, Math.max(width - 0.5, 1), height);
      this.boxes.push({ x, y, width, height, job, title, about, start, end });
    },
    ticks(pen, left, width, middle, height, text, line) {
      const span = this.to - this.from;
      const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200].map((each) => each * 1000);
      const wanted = span / Math.max(2, (width - left) / 110);
      const step = steps.find((each) => each >= wanted) ?? 86400000;
      pen.textAlign = "center";
      const zone = new Date(this.from).getTimezoneOffset() * 60000;
      for (let at = Math.ceil((this.from - zone) / step) * step + zone; at <= this.to; at += step) {
        const x = this.x(at);
        pen.fillStyle = line;
        pen.fillRect(x, AXIS - 4, 1, height);
        pen.fillStyle = text;
        const shown = new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false,
          ...(step < 60000 ? { second: "2-digit" } : {}) });
        if (x > left + 18 && x < width - 18) pen.fillText(shown, x, 8);
      }
    },
    fit(pen, text, width) {
      if (pen.measureText(text).width <= width) return text;
      while (text && pen.measureText(text + "…").width > width) text = text.slice(0, -1);
      return text + "…";
    },
    found(event) {
      const edge = this.$refs.canvas.getBoundingClientRect();
      const x = event.clientX - edge.left, y = event.clientY - edge.top;
      return this.boxes.findLast((box) => x >= box.x - 1 && x <= box.x + box.width + 1 && y >= box.y && y <= box.y + box.height);
    },
    down(event) {
      if (event.pointerType === "mouse" && event.button !== 0) return;
      this.points.set(event.pointerId, event.clientX);
      this.began = { x: event.clientX, moved: false };
      this.$refs.canvas.setPointerCapture(event.pointerId);
    },
    move(event) {
      if (!this.points.has(event.pointerId)) return this.hint(event);
      const before = [...this.points.values()];
      this.points.set(event.pointerId, event.clientX);
      const after = [...this.points.values()], edge = this.$refs.canvas.getBoundingClientRect().left;
      if (Math.abs(event.clientX - this.began.x) > 4) this.began.moved = true;
      if (!this.began.moved) return;
      this.tip = null;
      if (after.length === 2) {
        const was = Math.max(Math.abs(before[0] - before[1]), 10), is = Math.max(Math.abs(after[0] - after[1]), 10);
        this.scale(was / is, this.time((after[0] + after[1]) / 2 - edge));
      } else this.set(this.from - this.time(after[0]) + this.time(before[0]), this.to - this.time(after[0]) + this.time(before[0]));
    },
    up(event) {
      if (!this.points.delete(event.pointerId)) return;
      if (this.began.moved) return this.tell();
      const box = event.type === "pointerup" ? this.found(event) : null;
      if (box?.job) window.location.href = "/jobs/" + encodeURIComponent(box.job);
    },
    leave() { if (!this.points.size) this.tip = null; },
    hint(event) {
      const box = this.found(event);
      this.$refs.canvas.style.cursor = box?.job ? "pointer" : "grab";
      if (!box) { this.tip = null; return; }
      const edge = this.$el.getBoundingClientRect();
      const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });
      const about = `${box.about}, ${clock(box.start)} to ${box.end === null ? "now" : clock(box.end)}`;
      this.tip = { x: Math.max(0, Math.min(event.clientX - edge.left + 12, edge.width - 270)), y: event.clientY - edge.top + 14,
        title: box.title, about };
    },
    wheel(event) {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.scale(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.clientX - this.$refs.canvas.getBoundingClientRect().left));
      this.tell();
    },
    dive(event) {
      this.scale(0.5, this.time(event.clientX - this.$refs.canvas.getBoundingClientRect().left));
      this.tell();
    },
    zoom(factor) { this.scale(factor, factor < 1 || this.to < this.data.now ? (this.from + this.to) / 2 : this.to); this.tell(); },
    shift(part) { const by = part * (this.to - this.from); this.set(this.from + by, this.to + by); this.tell(); },
    now() { this.set(this.data.now - (this.to - this.from), this.data.now); this.tell(); },
    scale(factor, about) {
      const span = Math.min(Math.max((this.to - this.from) * factor, LEAST_MS), 86400000);
      const part = (about - this.from) / (this.to - this.from);
      this.set(about - part * span, about + (1 - part) * span);
    },
    set(from, to) {
      const past = Math.max(to - this.data.now, 0);
      this.from = from - past;
      this.to = to - past;
      this.draw();
    },
    tell() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => { this.timer = null; this.$emit("moved", [Math.round(this.from), Math.round(this.to), ++this.asked]); }, WAIT_MS);
    },
  },
};
