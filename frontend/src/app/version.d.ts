/** The version of Headscope that this page belongs to; set by Vite. */
declare const __VERSION__: string
