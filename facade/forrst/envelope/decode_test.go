package envelope_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// problem is what a test says about an error: where it is and which.
type problem struct {
	Code  envelope.Code
	Place string
}

// at returns problems with one code.
func at(code envelope.Code, pointers ...string) []problem {
	var problems []problem
	for _, pointer := range pointers {
		problems = append(problems, problem{code, pointer})
	}
	return problems
}

func found(errors envelope.Errors) []problem {
	var problems []problem
	for _, err := range errors {
		place := "nowhere"
		switch {
		case err.Source == nil:
		case err.Source.Pointer != nil:
			place = *err.Source.Pointer
		default:
			place = fmt.Sprint(*err.Source.Position)
		}
		problems = append(problems, problem{err.Code, place})
	}
	return problems
}

const (
	validProtocol = `"protocol":{"name":"forrst","version":"0.1.0"}`
	validCall     = `"call":{"function":"f"}`
	valid         = validProtocol + `,"id":"a-1",` + validCall
)

func TestDecodeRequestReadsEverything(t *testing.T) {
	body := `  {
		"extensions": [ {"urn": "urn:forrst:ext:x", "options": {"n": 1.10}, "data": 1}, {"urn": "y", "options": []}, {"urn": "z"} ],
		"call": {"arguments": {"big": 12345678901234567890.0100}, "function": "urn:acme:forrst:fn:a", "version": "2.0.0-rc.1+b"},
		"context": {"caller": "c", "n": 1e400}, "future": {"a": 1, "a": 2},
		"\u0069d": "\u00fc\n\ud83d\ude00", "protocol": {"version": "0.7.3", "name": "forrst", "more": null}
	}` + "\r\n\t"
	got, problems := envelope.DecodeRequest([]byte(body))
	if problems != nil {
		t.Fatal(problems)
	}
	want := envelope.Request{
		Protocol: envelope.Protocol{Name: "forrst", Version: "0.7.3"},
		ID:       "ü\n😀",
		Call: envelope.Call{
			Function: "urn:acme:forrst:fn:a", Version: "2.0.0-rc.1+b",
			Arguments: json.RawMessage(`{"big": 12345678901234567890.0100}`),
		},
		Context: json.RawMessage(`{"caller": "c", "n": 1e400}`),
		Extensions: []envelope.RequestExtension{
			{URN: "urn:forrst:ext:x", Options: json.RawMessage(`{"n": 1.10}`)},
			{URN: "y", Options: json.RawMessage(`{}`)},
			{URN: "z"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRequestTakesNullAndEmptyArraysForAbsent(t *testing.T) {
	for _, body := range []string{
		`{` + validProtocol + `,"id":"a-1","call":{"function":"f","version":null,"arguments":null},"context":null,"extensions":null}`,
		`{` + valid + `,"extensions":[]}`,
	} {
		got, problems := envelope.DecodeRequest([]byte(body))
		want := envelope.Request{Protocol: envelope.Protocol{Name: "forrst", Version: "0.1.0"}, ID: "a-1", Call: envelope.Call{Function: "f"}}
		if diff := cmp.Diff(want, got); diff != "" || problems != nil {
			t.Errorf("%s: %v (-want +got):\n%s", body, problems, diff)
		}
	}
	got, problems := envelope.DecodeRequest([]byte(`{` + validProtocol + `,"id":"a-1","call":{"function":"f","arguments":[ ]},"context":[]}`))
	if string(got.Call.Arguments) != "{}" || string(got.Context) != "{}" || problems != nil {
		t.Errorf("arguments %s, context %s, %v", got.Call.Arguments, got.Context, problems)
	}
}

func TestDecodeRequestRefusesWhatIsNotJSON(t *testing.T) {
	deep := strings.Repeat("[", envelope.MaxDepth) + strings.Repeat("]", envelope.MaxDepth)
	cases := map[string]struct {
		body     string
		position int
	}{
		"nothing":                         {"", 0},
		"only white space":                {" \n", 2},
		"a word":                          {"hello", 0},
		"half a literal":                  {"tru", 3},
		"a wrong literal":                 {"nulL", 3},
		"a truncated object":              {`{"id":"a"`, 9},
		"a truncated string":              {`{"id":"a`, 8},
		"a truncated escape":              {`{"id":"\u12`, 11},
		"an unknown escape":               {`{"id":"\x"}`, 7},
		"trailing data":                   {`{` + valid + `} x`, 84},
		"a second document":               {`{"id":"a"}{}`, 10},
		"trailing data behind an array":   {`[] ,`, 3},
		"a NUL behind the document":       {"{}\x00", 2},
		"a byte order mark":               {"\ufeff{}", 0},
		"a trailing comma in an object":   {`{"id":"a",}`, 9},
		"a trailing comma in an array":    {`{"a":[1,]}`, 7},
		"a missing comma":                 {`{"a":1 "b":2}`, 7},
		"a missing colon":                 {`{"a" 1}`, 5},
		"single quotes":                   {`{'a':1}`, 1},
		"a bare name":                     {`{a:1}`, 1},
		"a comment":                       {`{/**/}`, 1},
		"a leading zero":                  {`{"a":01}`, 6},
		"a leading plus":                  {`{"a":+1}`, 5},
		"a leading point":                 {`{"a":.5}`, 5},
		"a trailing point":                {`{"a":1.}`, 7},
		"a lone minus":                    {`{"a":-}`, 6},
		"an empty exponent":               {`{"a":1e}`, 7},
		"NaN":                             {`{"a":NaN}`, 5},
		"a hexadecimal number":            {`{"a":0x1}`, 6},
		"a raw control character":         {"{\"a\":\"\n\"}", 6},
		"a raw DEL is no control in JSON": {"{\"a\":\"\x7f\"", 8},
		"invalid UTF-8 in a string":       {"{\"a\":\"\xff\"}", 6},
		"invalid UTF-8 in a name":         {"{\"\xc3\x28\":1}", 2},
		"an encoded surrogate":            {"{\"a\":\"\xed\xa0\x80\"}", 6},
		"an overlong encoding":            {"{\"a\":\"\xc0\xaf\"}", 6},
		"invalid UTF-8 outside strings":   {"{\xff}", 1},
		"a lone high surrogate":           {`{"a":"x\ud800"}`, 7},
		"a lone low surrogate":            {`{"a":"\udc00"}`, 6},
		"a reversed pair":                 {`{"a":"\udc00\ud800"}`, 6},
		"two high surrogates":             {`{"a":"\ud800\ud800"}`, 6},
		"nested too deep":                 {`{"a":` + deep + `}`, 5 + envelope.MaxDepth - 1},
		"a mismatched bracket":            {`{"a":[1}}`, 7},
		"UTF-16":                          {"{\x00}\x00", 1},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request, problems := envelope.DecodeRequest([]byte(test.body))
			want := []problem{{envelope.ParseError, fmt.Sprint(test.position)}}
			if diff := cmp.Diff(want, found(problems)); diff != "" || request.ID != "" {
				t.Errorf("id %q, %v (-want +got):\n%s", request.ID, problems, diff)
			}
			if isNamed := strings.Contains(problems[0].Message, "byte order mark"); isNamed != (name == "a byte order mark") {
				t.Errorf("the message is %q", problems[0].Message)
			}
		})
	}
}

func TestDecodeRequestRefusesABrokenEnvelope(t *testing.T) {
	invalid := func(pointers ...string) []problem { return at(envelope.InvalidRequest, pointers...) }
	with := func(members string) string { return `{` + valid + `,` + members + `}` }
	callOf := func(call string) string { return `{` + validProtocol + `,"id":"a-1","call":` + call + `}` }
	protocolOf := func(protocol string) string { return `{"id":"a-1",` + validCall + `,"protocol":` + protocol + `}` }
	idOf := func(id string) string { return `{` + validProtocol + `,` + validCall + `,"id":` + id + `}` }
	lock, lockToo, lockShort := `{"urn":"urn:cline:forrst:ext:atomic-lock"}`, `{"urn":"urn:forrst:ext:atomic-lock"}`, `{"urn":"urn:forrst:ext:atomicLock"}`

	cases := map[string]struct {
		body string
		id   string
		want []problem
	}{
		"null":                            {`null`, "", invalid("")},
		"a number":                        {` 42 `, "", invalid("")},
		"a string":                        {`"forrst"`, "", invalid("")},
		"an array":                        {`[]`, "", invalid("")},
		"a batch":                         {`[{` + valid + `}]`, "", invalid("")},
		"an empty object":                 {`{}`, "", invalid("/protocol", "/id", "/call")},
		"names in another case":           {`{"Protocol":{"name":"forrst","version":"0.1.0"},"ID":"a","CALL":{"function":"f"}}`, "", invalid("/protocol", "/id", "/call")},
		"everything wrong at once":        {`{"protocol":1,"id":2,"call":3,"context":4,"extensions":5}`, "", invalid("/protocol", "/id", "/call", "/context", "/extensions")},
		"an order that does not matter":   {`{"extensions":5,"context":4,"call":3,"id":"x","protocol":1}`, "x", invalid("/protocol", "/call", "/context", "/extensions")},
		"a protocol that is null":         {protocolOf(`null`), "a-1", invalid("/protocol")},
		"a protocol that is an array":     {protocolOf(`["forrst"]`), "a-1", invalid("/protocol")},
		"an empty protocol":               {protocolOf(`{}`), "a-1", invalid("/protocol/name", "/protocol/version")},
		"an empty protocol of PHP":        {protocolOf(`[]`), "a-1", invalid("/protocol/name", "/protocol/version")},
		"another protocol":                {protocolOf(`{"name":"jsonrpc","version":"2.0.0"}`), "a-1", invalid("/protocol/name")},
		"a protocol name in another case": {protocolOf(`{"name":"Forrst","version":"0.1.0"}`), "a-1", invalid("/protocol/name")},
		"a protocol version of one part":  {protocolOf(`{"name":"forrst","version":"1"}`), "a-1", invalid("/protocol/version")},
		"a protocol version of two parts": {protocolOf(`{"name":"forrst","version":"0.1"}`), "a-1", invalid("/protocol/version")},
		"a protocol version with a v":     {protocolOf(`{"name":"forrst","version":"v0.1.0"}`), "a-1", invalid("/protocol/version")},
		"an empty protocol version":       {protocolOf(`{"name":"forrst","version":""}`), "a-1", invalid("/protocol/version")},
		"a numeric protocol version":      {protocolOf(`{"name":"forrst","version":0.1}`), "a-1", invalid("/protocol/version")},
		"two versions of the protocol":    {protocolOf(`{"name":"forrst","version":"0.1.0","version":"0.1.0"}`), "a-1", invalid("/protocol/version")},
		"a bare protocol name":            {protocolOf(`"forrst"`), "a-1", invalid("/protocol")},
		"a protocol text with nonsense":   {protocolOf(`"forrst/x.y"`), "a-1", invalid("/protocol")},
		"no id":                           {`{` + validProtocol + `,` + validCall + `}`, "", invalid("/id")},
		"an id that is null":              {idOf(`null`), "", invalid("/id")},
		"an id that is empty":             {idOf(`""`), "", invalid("/id")},
		"an id that is a number":          {idOf(`7`), "", invalid("/id")},
		"an id that is a boolean":         {idOf(`true`), "", invalid("/id")},
		"an id that is an object":         {idOf(`{}`), "", invalid("/id")},
		"an id that is an array":          {idOf(`[]`), "", invalid("/id")},
		"two ids":                         {with(`"id":"b"`), "", invalid("/id")},
		"two ids, one of them escaped":    {with(`"i\u0064":"b"`), "", invalid("/id")},
		"a call that is null":             {callOf(`null`), "a-1", invalid("/call")},
		"a call that is a string":         {callOf(`"f"`), "a-1", invalid("/call")},
		"a call that is an array":         {callOf(`[1]`), "a-1", invalid("/call")},
		"an empty call":                   {callOf(`{}`), "a-1", invalid("/call/function")},
		"an empty call of PHP":            {callOf(`[]`), "a-1", invalid("/call/function")},
		"a function that is null":         {callOf(`{"function":null}`), "a-1", invalid("/call/function")},
		"a function that is empty":        {callOf(`{"function":""}`), "a-1", invalid("/call/function")},
		"a function that is a number":     {callOf(`{"function":1}`), "a-1", invalid("/call/function")},
		"two functions":                   {callOf(`{"function":"f","function":"f"}`), "a-1", invalid("/call/function")},
		"everything wrong in the call":    {callOf(`{"function":1,"version":2,"arguments":3}`), "a-1", invalid("/call/function", "/call/version", "/call/arguments")},
		"a function version with a v":     {callOf(`{"function":"f","version":"v1.0.0"}`), "a-1", invalid("/call/version")},
		"a function version of two parts": {callOf(`{"function":"f","version":"1.0"}`), "a-1", invalid("/call/version")},
		"a word for a function version":   {callOf(`{"function":"f","version":"stable"}`), "a-1", invalid("/call/version")},
		"an empty function version":       {callOf(`{"function":"f","version":""}`), "a-1", invalid("/call/version")},
		"a function version with zeros":   {callOf(`{"function":"f","version":"01.0.0"}`), "a-1", invalid("/call/version")},
		"a function version with a break": {callOf(`{"function":"f","version":"1.0.0\n"}`), "a-1", invalid("/call/version")},
		"arguments that are an array":     {callOf(`{"function":"f","arguments":[1]}`), "a-1", invalid("/call/arguments")},
		"arguments that are a string":     {callOf(`{"function":"f","arguments":"{}"}`), "a-1", invalid("/call/arguments")},
		"a context that is a string":      {with(`"context":"x"`), "a-1", invalid("/context")},
		"a context that is an array":      {with(`"context":[1]`), "a-1", invalid("/context")},
		"extensions by name":              {with(`"extensions":{"caching":{}}`), "a-1", invalid("/extensions")},
		"an empty object of extensions":   {with(`"extensions":{}`), "a-1", invalid("/extensions")},
		"extensions that are a string":    {with(`"extensions":"x"`), "a-1", invalid("/extensions")},
		"elements that are no objects":    {with(`"extensions":[null,1,"x",[1],[]]`), "a-1", invalid("/extensions/0", "/extensions/1", "/extensions/2", "/extensions/3", "/extensions/4/urn")},
		"wrong members of extensions":     {with(`"extensions":[{"urn":"a"},{"urn":1,"options":2},{"urn":"","options":[1]},{"options":"x"}]`), "a-1", invalid("/extensions/1/urn", "/extensions/1/options", "/extensions/2/urn", "/extensions/2/options", "/extensions/3/urn", "/extensions/3/options")},
		"an extension twice":              {with(`"extensions":[` + lock + `,` + lock + `]`), "a-1", invalid("/extensions/1")},
		"an extension in three spellings": {with(`"extensions":[` + lockShort + `,{"urn":"x"},` + lockToo + `,` + lock + `]`), "a-1", invalid("/extensions/2", "/extensions/3")},
		"a hint twice":                    {with(`"extensions":[{"urn":"urn:forrst:ext:tracing"},{"urn":"urn:cline:forrst:ext:tracing"}]`), "a-1", invalid("/extensions/1")},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request, problems := envelope.DecodeRequest([]byte(test.body))
			if diff := cmp.Diff(test.want, found(problems)); diff != "" || request.ID != test.id {
				t.Errorf("id %q, want %q; (-want +got):\n%s", request.ID, test.id, diff)
			}
		})
	}
}

func TestDecodeRequestAcceptsUnknownThings(t *testing.T) {
	for name, body := range map[string]string{
		"unknown members":                 `{` + valid + `,"retryable":true,"error":null,"async":{}}`,
		"unknown members given twice":     `{` + valid + `,"x":1,"x":2}`,
		"a function version of one part":  `{` + validProtocol + `,"id":"a-1","call":{"function":"f","version":"1"}}`,
		"an id that looks like a number":  `{` + validProtocol + `,"id":"42",` + validCall + `}`,
		"an id that is long":              `{` + validProtocol + `,"id":"` + strings.Repeat("ж", 10000) + `",` + validCall + `}`,
		"an unknown extension twice":      `{` + valid + `,"extensions":[{"urn":"urn:acme:forrst:ext:x"},{"urn":"urn:acme:forrst:ext:x"}]}`,
		"an extension in a strange case":  `{` + valid + `,"extensions":[{"urn":"urn:forrst:ext:atomic-lock"},{"urn":"URN:forrst:ext:atomic-lock"}]}`,
		"the protocol as a text":          `{"protocol":"forrst/0.1","id":"a-1",` + validCall + `}`,
		"another minor version":           `{"protocol":{"name":"forrst","version":"0.99.0-beta+x"},"id":"a-1",` + validCall + `}`,
		"nesting that is just acceptable": `{` + valid + `,"x":` + strings.Repeat("[", envelope.MaxDepth-1) + strings.Repeat("]", envelope.MaxDepth-1) + `}`,
	} {
		if _, problems := envelope.DecodeRequest([]byte(body)); problems != nil {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestDecodeRequestStopsAtAnUnknownProtocolVersion(t *testing.T) {
	cases := map[string]struct{ protocol, pointer, requested string }{
		"the next major": {`{"name":"forrst","version":"1.0.0"}`, "/protocol/version", "1.0.0"},
		"a far one":      {`{"version":"99999999999999999999.0.0","name":"forrst"}`, "/protocol/version", "99999999999999999999.0.0"},
		"as a text":      {`"forrst/1.0"`, "/protocol", "1.0.0"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request, problems := envelope.DecodeRequest([]byte(`{"call":7,"id":"a-1","protocol":` + test.protocol + `}`))
			if diff := cmp.Diff(at(envelope.InvalidProtocolVersion, test.pointer), found(problems)); diff != "" || request.ID != "a-1" {
				t.Fatalf("id %q (-want +got):\n%s", request.ID, diff)
			}
			if want := `{"requested":"` + test.requested + `","supported":["0.1.0"]}`; string(problems[0].Details) != want {
				t.Errorf("details %s, want %s", problems[0].Details, want)
			}
		})
	}
}

func TestDecodeRequestBoundsItsErrors(t *testing.T) {
	body := `{` + valid + `,"extensions":[` + strings.Repeat("0,", 100_000) + `0]}`
	if _, problems := envelope.DecodeRequest([]byte(body)); len(problems) != envelope.MaxErrors {
		t.Errorf("%d errors, want %d", len(problems), envelope.MaxErrors)
	}
}

// What is wrong must not cost more than what is right: a body may be wrong in as many
// places as it has bytes.
func TestErrorsBeyondTheBoundCostNothing(t *testing.T) {
	const most = 5000
	for name, elements := range map[string]string{
		"of other types": strings.Repeat("0,", 100_000) + "0",
		"empty":          strings.Repeat("{},", 100_000) + "{}",
	} {
		request := []byte(`{` + valid + `,"extensions":[` + elements + `]}`)
		if allocations := testing.AllocsPerRun(1, func() { _, _ = envelope.DecodeRequest(request) }); allocations > most {
			t.Errorf("a request with extensions that are %s takes %.0f allocations", name, allocations)
		}
		response := []byte(`{` + spoken + `,"id":"a","errors":[` + elements + `]}`)
		if allocations := testing.AllocsPerRun(1, func() { _, _ = envelope.DecodeResponse(response) }); allocations > most {
			t.Errorf("a response with errors that are %s takes %.0f allocations", name, allocations)
		}
	}
}

// FuzzDecodeRequest compares the decoder with encoding/json, which accepts more: text
// that is no Unicode, and deeper nesting.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{` + valid + `,"context":{},"extensions":[{"urn":"urn:forrst:ext:atomicLock","options":{"key":"k"}}]}`))
	f.Add([]byte(`[1.5e-3,"\ud83d\ude00",true,false,null,{"a":[]}]`))
	f.Add([]byte(`{"protocol":"forrst/0.1","id":"\u0000"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, problems := envelope.DecodeRequest(body)
		isParsed := len(problems) == 0 || problems[0].Code != envelope.ParseError
		if isParsed && !json.Valid(body) {
			t.Fatalf("accepts what is not JSON: %q", body)
		}
		if !isParsed {
			position := *problems[0].Source.Position
			if position < 0 || position > len(body) {
				t.Fatalf("position %d in %d bytes", position, len(body))
			}
			if json.Valid(body) && isStrict(body) {
				t.Fatalf("refuses JSON: %q: %v", body, problems)
			}
			return
		}
		if len(problems) > 0 {
			return
		}
		again, problems := envelope.DecodeRequest(envelope.MustEncode(request))
		if problems != nil || again.ID != request.ID || again.Call.Function != request.Call.Function {
			t.Fatalf("does not survive encoding: %q: %v", body, problems)
		}
	})
}

// isStrict reports whether JSON has no replacement characters, as encoding/json writes
// them for what is no Unicode, and is not nested too deeply.
func isStrict(body []byte) bool {
	depth := 0
	for decoder := json.NewDecoder(bytes.NewReader(body)); ; {
		token, err := decoder.Token()
		if err != nil {
			return true
		}
		switch token := token.(type) {
		case string:
			if strings.ContainsRune(token, utf8.RuneError) {
				return false
			}
		case json.Delim:
			depth += map[json.Delim]int{'{': 1, '[': 1, '}': -1, ']': -1}[token]
		}
		if depth > envelope.MaxDepth {
			return false
		}
	}
}
