// A terminal beside a task: keys and output as frames over a WebSocket of their own, as `rota exec` has them.
import { Terminal, FitAddon } from "nicegui-xterm";
import { loadResource } from "../../static/utils/resources.js";

const MOST = 16384;
export default {
  template: `<div class="terminal">
      <div ref="screen" class="terminal-screen" role="group" aria-label="Terminal"></div>
      <p class="muted" role="status">{{ said }}</p>
    </div>`,
  props: { path: String, resourcePath: String },
  emits: ["ended"],
  data() {
    return { said: "Connecting …" };
  },
  async mounted() {
    await loadResource(window.path_prefix + `${this.resourcePath}/xterm.css`);
    this.terminal = new Terminal({ fontSize: 13, scrollback: 5000, screenReaderMode: false });
    this.terminal.loadAddon((this.fitter = new FitAddon()));
    this.terminal.open(this.$refs.screen);
    this.fitter.fit();
    this.encoder = new TextEncoder();
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}${this.path}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send("O", JSON.stringify({ tty: true, term: "xterm-256color", size: this.size() }));
    this.socket.onmessage = (message) => this.hear(new Uint8Array(message.data));
    this.socket.onclose = (event) => this.over(event.code === 4401 ? "Your login has ended." : "The session has ended.");
    this.terminal.onData((typed) => this.type(typed));
    this.terminal.onResize(() => this.send("w", JSON.stringify(this.size())));
    this.leaves = () => this.send("h", ""); // else the shell would go on for ten minutes
    window.addEventListener("pagehide", this.leaves);
    this.watcher = new ResizeObserver(() => this.fitter.fit());
    this.watcher.observe(this.$refs.screen);
    this.terminal.focus();
  },
  unmounted() {
    this.watcher?.disconnect();
    window.removeEventListener("pagehide", this.leaves);
    this.send("h", "");
    this.socket?.close();
    this.terminal?.dispose();
  },
  methods: {
    size() {
      return [this.terminal.rows, this.terminal.cols];
    },
    type(text) {
      const bytes = this.encoder.encode(text);
      for (let at = 0; at < bytes.length; at += MOST) this.send("i", bytes.subarray(at, at + MOST));
    },
    send(kind, payload) {
      if (this.socket?.readyState !== WebSocket.OPEN) return;
      const bytes = typeof payload === "string" ? this.encoder.encode(payload) : payload;
      const frame = new Uint8Array(1 + bytes.length);
      frame[0] = kind.charCodeAt(0);
      frame.set(bytes, 1);
      this.socket.send(frame);
    },
    hear(frame) {
      const [kind, payload] = [String.fromCharCode(frame[0]), frame.subarray(1)];
      const text = () => new TextDecoder().decode(payload);
      if (kind === "o" || kind === "r") this.terminal.write(payload);
      else if (kind === "O") this.said = "Connected: a shell beside the task, with its devices and limits.";
      else if (kind === "n") this.said = text();
      else if (kind === "f") this.over(text());
      else if (kind === "x") this.over(`The shell has ended with status ${JSON.parse(text()).code ?? 0}.`);
    },
    over(why) {
      if (this.ended) return;
      this.ended = true;
      this.said = why;
      this.$emit("ended");
    },
  },
};
