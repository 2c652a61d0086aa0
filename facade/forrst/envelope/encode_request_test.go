package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

func TestAppendRequestCopiesWhatWasDecoded(t *testing.T) {
	for name, body := range map[string]string{
		"everything": `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","call":{"function":"f.g","version":"2","arguments":{ "n": 1.0e400, "<":"\u00e9" }},` +
			`"context":{"caller":"c", "x":[ ]},"extensions":[{"urn":"u","options":{"a":-0}},{"urn":"v"}]}`,
		"as little as there may be": `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","call":{"function":"f"}}`,
		"texts that need escapes":   `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"\"<\n","call":{"function":"é\\"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			request, problems := envelope.DecodeRequest([]byte(body))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got := envelope.AppendRequest([]byte("before"), &request)
			if diff := cmp.Diff("before"+body, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithMember(t *testing.T) {
	for name, test := range map[string]struct{ object, want string }{
		"nothing":              {``, `{"caller":"me"}`},
		"an empty object":      {`{ }`, `{"caller":"me"}`},
		"another member":       {`{"a" : 1.00}`, `{"a":1.00,"caller":"me"}`},
		"the member":           {`{"caller":"x","n": [1, 2]}`, `{"n":[1, 2],"caller":"me"}`},
		"the member, escaped":  {`{"c\u0061ller":7}`, `{"caller":"me"}`},
		"the member, twice":    {`{"caller":1,"a":2,"caller":3}`, `{"a":2,"caller":"me"}`},
		"in another case":      {`{"caller":1,"Caller":"x"}`, `{"Caller":"x","caller":"me"}`},
		"the member elsewhere": {`{"a":{"caller":"x"}}`, `{"a":{"caller":"x"},"caller":"me"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := envelope.WithMember(json.RawMessage(test.object), "caller", json.RawMessage(`"me"`)); string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestNode(t *testing.T) {
	for meta, want := range map[string]string{``: "", `{}`: "", `{"x":1.0,"node":"n"}`: "n", `{"node":7}`: "", `{"node":"n","node":"m"}`: ""} {
		if got := (&envelope.Response{Meta: json.RawMessage(meta)}).Node(); got != want {
			t.Errorf("%s: got %q, want %q", meta, got, want)
		}
	}
}
