package main

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestNothingStopsBeforeTheWebhookHasDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signalled, signal := context.WithCancel(t.Context())
		drained := make(chan struct{})
		running := endAfter(signalled, func() { <-drained })
		signal()
		synctest.Wait()
		if running.Err() != nil {
			t.Error("the caches stop while the webhook still judges reviews by them")
		}
		close(drained)
		synctest.Wait()
		if running.Err() == nil {
			t.Error("the process goes on when its webhook has drained")
		}
	})
}
