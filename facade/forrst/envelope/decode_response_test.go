package envelope_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const spoken = `"protocol":{"name":"forrst","version":"0.1.0"}`

func TestDecodeResponse(t *testing.T) {
	protocol := envelope.Protocol{Name: "forrst", Version: "0.1.0"}
	id, pointer, position := "a", "/call", 7
	cases := map[string]struct {
		body string
		want envelope.Response
	}{
		"a result":                    {`{` + spoken + `,"id":"a","result":{"n":1.0}}`, envelope.Response{Protocol: protocol, ID: &id, Result: json.RawMessage(`{"n":1.0}`)}},
		"a result of null":            {`{` + spoken + `,"id":"a","result":null}`, envelope.Response{Protocol: protocol, ID: &id}},
		"what later versions may add": {`{"protocol":{"name":"forrst","version":"0.9.0","x":1},"id":"a","result":1,"meta":{"node":"n"},"more":[]}`, envelope.Response{Protocol: envelope.Protocol{Name: "forrst", Version: "0.9.0"}, ID: &id, Result: json.RawMessage(`1`), Meta: json.RawMessage(`{"node":"n"}`)}},
		"meta that is none":           {`{` + spoken + `,"id":"a","result":1,"meta":[7]}`, envelope.Response{Protocol: protocol, ID: &id, Result: json.RawMessage(`1`)}},
		"errors": {`{` + spoken + `,"id":null,"result":null,"errors":[{"code":"A","message":"m","source":{"pointer":"/call"},"details":{"k":1}},{"code":"B","source":{"position":7},"details":[{}]}]}`,
			envelope.Response{Protocol: protocol, Errors: envelope.Errors{
				{Code: "A", Message: "m", Source: &envelope.Source{Pointer: &pointer}, Details: json.RawMessage(`{"k":1}`)},
				{Code: "B", Source: &envelope.Source{Position: &position}, Details: json.RawMessage(`[{}]`)},
			}}},
		"errors without a result": {`{` + spoken + `,"id":"a","errors":[{"code":"A","message":"m"}]}`, envelope.Response{Protocol: protocol, ID: &id, Errors: envelope.Errors{{Code: "A", Message: "m"}}}},
		"a result and no errors":  {`{` + spoken + `,"id":"a","result":1,"errors":null}`, envelope.Response{Protocol: protocol, ID: &id, Result: json.RawMessage(`1`)}},
		"extensions": {`{` + spoken + `,"id":"a","result":1,"extensions":[{"urn":"u","data":{"token":1}},{"urn":"v"},{"urn":"w","data":[]}]}`,
			envelope.Response{Protocol: protocol, ID: &id, Result: json.RawMessage(`1`), Extensions: []envelope.ResponseExtension{
				{URN: "u", Data: json.RawMessage(`{"token":1}`)}, {URN: "v"}, {URN: "w", Data: json.RawMessage(`{}`)},
			}}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := envelope.DecodeResponse([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoResponse(t *testing.T) {
	for _, body := range []string{
		``, `<html>Bad Gateway</html>`, `null`, `[]`, `"x"`, `{}`, `{` + spoken + `,"id":"a","result":1} x`, `{` + spoken,
		`{"protocol":{"name":"soap","version":"0.1.0"},"id":"a","result":1}`,
		`{"protocol":{"name":"forrst","version":"1.0.0"},"id":"a","result":1}`,
		`{"jsonrpc":"2.0","id":"a","result":1}`,
		`{` + spoken + `,"id":1,"result":1}`,
		`{` + spoken + `,"id":"a","errors":{}}`,
		`{` + spoken + `,"id":"a","errors":["x"]}`,
		`{` + spoken + `,"id":"a","errors":[{}]}`,
		`{` + spoken + `,"id":"a","errors":[{"code":7}]}`,
		`{` + spoken + `,"id":"a","errors":[{"code":"A","source":7}]}`,
		`{` + spoken + `,"id":"a","extensions":[{"data":{}}]}`,
		`{` + spoken + `,"id":"a","extensions":[{"urn":"u","data":7}]}`,
		`{` + spoken + `,"id":"a","result":1,"result":2}`,
		`{` + spoken + `,"id":"a","result":null,"errors":[]}`,
		`{` + spoken + `,"id":"a","errors":[ ]}`,
		`{` + spoken + `,"id":"a","result":1,"errors":[{"code":"A","message":"m"}]}`,
		`{` + spoken + `,"id":"a"}`,
		`{` + spoken + `,"id":"a","errors":null}`,
	} {
		if got, err := envelope.DecodeResponse([]byte(body)); !errors.Is(err, envelope.ErrNoResponse) || got != nil {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func TestErrorsThatSayLittle(t *testing.T) {
	body := `{` + spoken + `,"id":"a","result":null,"errors":[{"code":"A","message":"","source":[],"details":[]}]}`
	got, err := envelope.DecodeResponse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(envelope.Errors{{Code: "A", Details: json.RawMessage(`[]`)}}, got.Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeResponseReadsWhatIsEncoded(t *testing.T) {
	sent := envelope.NewResponse("a")
	sent.Result = json.RawMessage(`{"x":"<&>"}`)
	sent.Extensions = []envelope.ResponseExtension{{URN: "u", Data: json.RawMessage(`{"token":7}`)}}
	got, err := envelope.DecodeResponse(envelope.MustEncode(sent))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("(-sent +got):\n%s", diff)
	}
}

func TestDurationsAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`{"value":30,"unit":"second"}`: 30 * time.Second, `{"value":"1.5"}`: 1500 * time.Millisecond, `{"value":0}`: 0, `{"value":1e3,"unit":"millisecond"}`: time.Second,
	} {
		var got envelope.Duration
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Length != want {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{`30`, `"30s"`, `{}`, `[]`, `{"value":-1}`, `{"value":1,"unit":"weeks"}`, `{"value":1e99}`} {
		var got envelope.Duration
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}

func FuzzDecodeResponse(f *testing.F) {
	f.Add([]byte(`{` + spoken + `,"id":"a","result":1,"errors":[{"code":"A","source":{"pointer":""}}],"extensions":[{"urn":"u"}]}`))
	f.Add([]byte(strings.Repeat(`[`, 600)))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := envelope.DecodeResponse(body); (got == nil) == (err == nil) {
			t.Fatalf("%v, %v", got, err)
		}
	})
}
