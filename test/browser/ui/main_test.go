// Package ui tests the page of the façade with a browser: Chromium, headless. The façade is real; its locks are in
// memory. What needs the API server is tested one folder up.
package ui_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

var browser context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	program := os.Getenv("CHROMIUM")
	if program == "" {
		fmt.Fprintln(os.Stderr, "CHROMIUM must name a Chromium; make browser-test finds one")
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program),
		chromedp.NoSandbox, // Which root may not have. The pages are the façade's own.
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("hide-scrollbars", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator) //nolint:fatcontext // It lives as long as the tests.
	defer end()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
