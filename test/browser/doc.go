// Package browser tests the events of the REST door with a browser: Chromium, headless. Its tests fail
// without one; "make browser-test" unpacks it.
package browser
