/** The files of the page. */
interface Assets {
  readonly html: string;
  readonly css: string;
  readonly js: string;
}

/** `scripts/build.js` replaces this module by one with the files of `page/`: an installed package reads none. */
export const ASSETS: Assets = { html: "<!doctype html>", css: "", js: "" };
