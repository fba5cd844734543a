// Keeps what was typed when a page has to be loaded again because its connection was lost: the manager was restarted,
// or the computer slept. A page that its user reloads starts empty.
(() => {
  const KEY = `rota-typed ${location.pathname}${location.search}`;
  const typed = new Map();
  const fields = () => [...document.querySelectorAll("#content input, #content textarea")];

  function nameOf(field) {
    const label = field.getAttribute("aria-label") || field.closest("label")?.textContent || field.placeholder || "";
    const alike = fields().filter((each) => each.getAttribute("aria-label") === field.getAttribute("aria-label"));
    return `${field.tagName} ${label.trim()} ${field.getAttribute("aria-label") ? alike.indexOf(field) : ""}`;
  }

  function isKept(field) {
    if (!field.matches?.("#content input, #content textarea")) return false;
    return field.tagName === "TEXTAREA" || ["text", "search", "number", ""].includes(field.getAttribute("type") || "");
  }

  document.addEventListener("input", (event) => {
    if (!isKept(event.target)) return;
    const name = nameOf(event.target);
    typed.delete(name); // the order is that of the last change
    typed.set(name, event.target);
  });

  addEventListener("pagehide", () => {
    if (window.socket?.connected || !typed.size) return;
    const values = [...typed].map(([name, field]) => [name, field.value]);
    sessionStorage.setItem(KEY, JSON.stringify(values));
  });

  function put(field, value) {
    const kind = field.tagName === "TEXTAREA" ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(field, value);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // A field that follows another one may be set by the manager meanwhile: the last word is what was typed.
  function restore(values, left) {
    for (const [name, value] of values) {
      const field = fields().find((each) => isKept(each) && nameOf(each) === name);
      if (field && field.value !== value) put(field, value);
    }
    if (left) setTimeout(() => restore(values, left - 1), 400);
  }

  const kept = sessionStorage.getItem(KEY);
  if (!kept) return;
  sessionStorage.removeItem(KEY);
  const values = JSON.parse(kept);
  const begin = () => (window.did_handshake ? restore(values, 3) : setTimeout(begin, 50));
  begin();
})();
