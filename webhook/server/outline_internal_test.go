package server

import (
	"fmt"
	"strings"
	"testing"
)

func TestValuesOfObjectsThatAreNotDecodedAreFree(t *testing.T) {
	// Objects of more than 20 bytes are not decoded without a stored one.
	cost := Cost{Decodes: func(object, old int) bool { return object <= 20 || old > 0 }}
	const large, small = `{"a":[1,2,3,4,5,6,7,8,9]}`, `{"a":[1,2]}`
	cases := map[string]struct {
		text string
		want int64
	}{
		"a small object":                        {`{"kind":"A","request":{"uid":"1","object":` + small + `,"oldObject":null}}`, 8},
		"a large object":                        {`{"kind":"A","request":{"uid":"1","object":` + large + `,"oldObject":null}}`, 5},
		"a large object with spaces":            {`{"request": { "object" : ` + large + ` , "options" : null } }`, 3},
		"a small object with many spaces":       {`{"request":{"object":` + strings.Repeat(" ", 50) + small + `}}`, 5},
		"a large object besides a stored one":   {`{"request":{"object":` + large + `,"oldObject":` + small + `}}`, 16},
		"a large object of another member":      {`{"request":{"options":` + large + `}}`, 12},
		"a text with brackets":                  {`{"request":{"object":"{[,{[,\"{[,","uid":"\\"}}`, 3},
		"two objects":                           {`{"request":{"object":` + large + `,"object":` + small + `}}`, 16},
		"two requests":                          {`{"request":{"object":` + large + `},"request":{"oldObject":` + small + `}}`, 17},
		"an object by an escaped name":          {`{"request":{"object":` + large + `,"oldObj\u0065ct":` + small + `}}`, 16},
		"an object by a name in capitals":       {`{"request":{"object":` + large + `,"oldOBJECT":` + small + `}}`, 16},
		"a request by an escaped name":          {`{"request":{"object":` + large + `},"r\u0065quest":{"oldObject":` + small + `}}`, 17},
		"an object outside the request":         {`{"other":{"object":` + large + `},"request":{"oldObject":` + small + `}}`, 17},
		"an object outside, and one without":    {`{"other":{"oldObject":` + small + `},"request":{"object":` + large + `}}`, 7},
		"an object that has a request in it":    {`{"request":{"object":{"request":{"object":` + large + `}}}}`, 2},
		"a text that ends within an object":     {`{"request":{"object":` + large[:20], 11},
		"a text that ends within a name":        {`{"request":{"object`, 2},
		"a text that ends within a backslash":   {`{"request":{"object\`, 2},
		"many objects, of which none is closed": {strings.Repeat("{", 100), 100},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			o := outlineOf([]byte(test.text))
			if got := o.decodedValues(cost); got != test.want {
				t.Errorf("%d values, want %d", got, test.want)
			}
		})
	}
}

func TestTheBeginningOfAReviewTellsWhoseItIs(t *testing.T) {
	// As the API server orders it.
	text := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"group":"forrst.dev"},"name":"a","namespace":"payments",` +
		`"operation":"CREATE","userInfo":{"username":"al\"ice","uid":"7","groups":["x","namespace"]},"object":{"namespace":"b"},"dryRun":true,"options":{"name":"c"}}}`
	whole := outlineOf([]byte(text))
	request := whole.request()
	got := fmt.Sprintf("%s %s %s %s %s %t", request.Operation, request.Namespace, request.Name, request.UserInfo.Username, request.UserInfo.UID, *request.DryRun)
	if want := `CREATE payments a al"ice 7 true`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	begun, _, _ := strings.Cut(text, `"b"`)
	cut := outlineOf([]byte(begun))
	if request := cut.request(); request.UserInfo.Username != `al"ice` || request.DryRun != nil {
		t.Errorf("of its beginning: %+v", request)
	}
	long := outlineOf([]byte(`{"request":{"namespace":"` + strings.Repeat("x", maxNameBytes) + `"}}`))
	if request := long.request(); request.Namespace != "" {
		t.Errorf("%d bytes of a namespace are kept", len(request.Namespace))
	}
}
