package envelope_test

import (
	"testing"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const lockRequest = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1",
	"call":{"function":"stock.reserve","version":"1.0.0","arguments":{"sku":"X9"}},
	"extensions":[{"urn":"urn:cline:forrst:ext:atomic-lock","options":{"key":"sku:X9","ttl":{"value":20,"unit":"second"}}}]}`

func BenchmarkDecodeRequest(b *testing.B) {
	body := []byte(lockRequest)
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := envelope.DecodeRequest(body); problems != nil {
			b.Fatal(problems)
		}
	}
}
