// Package browser tests the page of package live in a real Chromium. It is a module of its own, so that nobody who uses
// spillway gets the driver of a browser with it.
package browser
