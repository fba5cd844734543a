// Puts a choice of versions into the header. The list is in ../versions.js, beside the folders of the versions, as a
// script and not as JSON: pages that are opened from files may not fetch.
(() => {
  const versions = window.ROTA_VERSIONS || [];
  const here = document.querySelector("meta[name='rota-version']");
  const header = document.querySelector(".md-header__title");
  if (!here || !header || versions.length < 2) return;
  const root = new URL(here.dataset.root, location.href);
  const choice = document.createElement("select");
  choice.className = "versions";
  choice.setAttribute("aria-label", "Version of these pages");
  for (const version of versions) {
    choice.add(new Option(version, version, false, version === here.content));
  }
  choice.addEventListener("change", () => { location.href = new URL(`${choice.value}/index.html`, root).href; });
  header.after(choice);
})();
