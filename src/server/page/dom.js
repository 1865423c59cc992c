// The chat and its live view of the cache: /page.js is this file and the others, one after another.
"use strict";

const $ = (id) => document.getElementById(id);
