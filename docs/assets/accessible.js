// The theme wraps tables and adds buttons to code when a page is shown. Tables that are wider than the page can be
// scrolled with the keyboard; the bar with the button of a piece of code is no place to navigate to.
(() => {
  const reachable = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) {
        target.tabIndex = 0;
        target.setAttribute("role", "group");
        target.setAttribute("aria-label", "Table");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
      }
    }
  });
  const known = new WeakSet();
  const mend = () => {
    for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "none");
    for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (known.has(wrap)) continue;
      known.add(wrap);
      reachable.observe(wrap);
    }
  };
  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
})();
