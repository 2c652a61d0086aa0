package routes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

func TestLongestMatchWins(t *testing.T) {
	table, err := routes.Parse([]byte(`
routes:
- functions: ["payments.*", "billing.generateReport", "urn:acme:*"]
  url: http://payments.payments.svc:8080/forrst
- functions: ["payments.card.*", "payments.card.charge*"]
  url: https://cards/forrst
  timeout: 1m30s
- functions: ["payments.card.charge", "urn:*"]
  url: http://charge
  timeout: 250ms
- functions: ["*"]
  url: http://rest/
`))
	if err != nil {
		t.Fatal(err)
	}
	for function, want := range map[string]string{
		"payments.refund":           "http://payments.payments.svc:8080/forrst",
		"payments.":                 "http://rest/",
		"urn:acme:":                 "http://charge",
		"payments":                  "http://rest/",
		"Payments.refund":           "http://rest/",
		"billing.generateReport":    "http://payments.payments.svc:8080/forrst",
		"billing.generateReports":   "http://rest/",
		"payments.card.check":       "https://cards/forrst",
		"payments.card.chargeTwice": "https://cards/forrst",
		"payments.car":              "http://payments.payments.svc:8080/forrst",
		"payments.card.charge":      "http://charge",
		"urn:acme:forrst:fn:x":      "http://payments.payments.svc:8080/forrst",
		"urn:other:forrst:fn:x":     "http://charge",
		"x":                         "http://rest/",
		"forrst.ping":               "",
		"forrst.":                   "",
		"forrst":                    "http://rest/",
		"urn:cline:forrst:fn:x":     "",
		"urn:k8s:forrst:fn:x":       "",
	} {
		if route, ok := table.Find(function); route.URL != want || ok != (want != "") {
			t.Errorf("%s: %q, %t, want %q", function, route.URL, ok, want)
		}
	}
	var got []time.Duration
	for _, route := range table.Routes() {
		got = append(got, route.Timeout)
	}
	if len(got) != 4 || got[0] != 30*time.Second || got[1] != 90*time.Second || got[2] != 250*time.Millisecond {
		t.Errorf("timeouts %v", got)
	}
	if functions := table.Routes()[1].Functions; !slices.Equal(functions, []string{"payments.card.*", "payments.card.charge*"}) {
		t.Errorf("functions %q", functions)
	}
	if host := table.Routes()[0].Host; host != "payments.payments.svc:8080" {
		t.Errorf("host %q", host)
	}
	if _, ok := new(routes.Table).Find("x"); ok {
		t.Error("the zero table has a route")
	}
}

func TestNoRoutesAreRoutes(t *testing.T) {
	table, err := routes.Parse([]byte("routes: []\n"))
	if err != nil || len(table.Routes()) != 0 {
		t.Errorf("%v, %v", table, err)
	}
}

func TestDemandsOfARoute(t *testing.T) {
	table, err := routes.Parse([]byte(route("  lock: required\n  fullKeys: [\"lock:a:*\", \"lock:e\\u0301\"]\n  namespaces: [payments]\n")))
	if err != nil {
		t.Fatal(err)
	}
	demanding, _ := table.Find("f")
	if !demanding.NeedsLock {
		t.Error("needs no lock")
	}
	for key, want := range map[string]bool{"a:b": true, "a:": true, "a": false, "ab": false, "x:a:b": false, "\u00e9": true, "e\u0301": true, "\u00e9x": false} {
		if got := demanding.AllowsKey(v1alpha1.FullKeyOf(key)); got != want {
			t.Errorf("key %q: %t", key, got)
		}
	}
	if !demanding.ServesNamespace("payments") || demanding.ServesNamespace("shop") || demanding.ServesNamespace("") {
		t.Error("serves other namespaces")
	}
	table, err = routes.Parse([]byte(route("")))
	if err != nil {
		t.Fatal(err)
	}
	if plain, _ := table.Find("f"); plain.NeedsLock || !plain.AllowsKey("lock:a") || !plain.ServesNamespace("") {
		t.Error("a route without demands has some")
	}
}

// route is a file with one route and something about it.
func route(members string) string {
	return "routes:\n- functions: [f]\n  url: http://u\n" + members
}

func TestFaultsAreToldWithTheirLines(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"empty":                    {"", "line 1: the file is empty"},
		"a comment only":           {"# nothing\n", "line 1: the file is empty"},
		"null":                     {"null", "line 1: the file must be an object with routes"},
		"no object":                {"- a", "line 1: the file must be an object with routes"},
		"a lock that is optional":  {route("  lock: optional"), "line 4: lock must be required; leave it out if calls need none"},
		"keys without a lock":      {route("  fullKeys: ['lock:a']"), "line 2: fullKeys needs lock: required"},
		"no keys":                  {route("  lock: required\n  fullKeys: []"), "line 5: fullKeys must be a list that is not empty"},
		"a key without its prefix": {route("  lock: required\n  fullKeys: [a]"), `line 5: "a" in fullKeys must begin with lock:`},
		"a key with an asterisk":   {route("  lock: required\n  fullKeys: ['lock:a*b']"), `line 5: "lock:a*b" in fullKeys must have no asterisk but at its end`},
		"a key that is a number":   {route("  lock: required\n  fullKeys: [7]"), "line 5: each of fullKeys must be a text that is not empty"},
		"namespaces is a text":     {route("  namespaces: a"), "line 4: namespaces must be a list that is not empty"},
		"a namespace of no name":   {route("  namespaces: [A_b]"), `line 4: "A_b" in namespaces is not the name of a namespace`},
		"no routes":                {"{}", "line 1: routes is required"},
		"routes is null":           {"routes:\n", "line 1: routes is required"},
		"routes is no list":        {"routes:\n  a: b", "line 2: routes must be a list"},
		"a route is no object":     {"routes:\n- x\n", "line 2: a route must be an object with functions, url, timeout"},
		"an unknown member":        {"routes: []\nroute: []\n", `line 2: "route" is unknown here; known are routes`},
		"an unknown member below":  {route("  timout: 1s"), `line 4: "timout" is unknown here; known are functions, url, timeout`},
		"a member twice":           {route("  url: http://v"), "line 4: url must not be given twice"},
		"a name that is no text":   {route("  ? [a]\n  : b"), "line 4: \"\" is unknown here; known are functions, url, timeout"},
		"two documents":            {route("---\nroutes: []\n"), "line 4: there must be one document only"},
		"no YAML":                  {"routes:\n- functions: [f\n", "line 2: did not find expected ',' or ']'"},
		"no YAML, second document": {route("---\n{"), "line 5: did not find expected node content"},
		"no YAML, first line":      {"a: [", "line 1: did not find expected node content"},
		"no YAML, misplaced key":   {"routes:\n- functions: [f]\n  url: http://u\n timeout: 1s", "line 4: did not find expected key"},
		"no UTF-8":                 {"routes:\n- functions: [\"\xff\"]", "line 2: must be text in UTF-8 without control characters"},
		"a control character":      {"routes:\n\n- \x00", "line 3: must be text in UTF-8 without control characters"},
		"a tab":                    {"routes:\n\t- a", "line 2: found character that cannot start any token"},
		"an alias":                 {"routes:\n- functions: &a [f]\n  url: http://u\n- functions: *a\n  url: http://v", "line 4: functions must be a list that is not empty"},
		"no functions":             {"routes:\n- url: http://u", "line 2: functions is required"},
		"functions is empty":       {"routes:\n- url: http://u\n  functions: []", "line 3: functions must be a list that is not empty"},
		"functions is a text":      {"routes:\n- url: http://u\n  functions: f", "line 3: functions must be a list that is not empty"},
		"a function is a number":   {"routes:\n- url: http://u\n  functions:\n  - 1", "line 4: a function must be a text that is not empty"},
		"a function is empty":      {"routes:\n- url: http://u\n  functions: ['']", "line 3: a function must be a text that is not empty"},
		"white space":              {"routes:\n- url: http://u\n  functions: ['a b']", `line 3: function "a b" must not contain white space or control characters`},
		"an asterisk inside":       {"routes:\n- url: http://u\n  functions: ['a*b']", `line 3: function "a*b" must have no asterisk but at its end`},
		"two asterisks":            {"routes:\n- url: http://u\n  functions: ['a**']", `line 3: function "a**" must have no asterisk but at its end`},
		"a system function":        {"routes:\n- url: http://u\n  functions: [forrst.ping]", `line 3: function "forrst.ping" must not begin with forrst. or urn:cline: or urn:k8s:: such functions are not routed`},
		"a system prefix":          {"routes:\n- url: http://u\n  functions: ['urn:cline:*']", `line 3: function "urn:cline:*" must not begin`},
		"a vendor prefix":          {"routes:\n- url: http://u\n  functions: ['urn:k8s:x*']", `line 3: function "urn:k8s:x*" must not begin`},
		"a function twice":         {route("- functions: [g, f]\n  url: http://v"), `line 4: function "f" has a route already, in line 2`},
		"a prefix twice":           {"routes:\n- functions: ['a*', 'a*']\n  url: http://v", `line 2: function "a*" has a route already, in line 2`},
		"no url":                   {"routes:\n- functions: [f]", "line 2: url is required"},
		"url is null":              {"routes:\n- functions: [f]\n  url:", "line 2: url is required"},
		"url is a number":          {"routes:\n- functions: [f]\n  url: 1", "line 3: url must be a text that is not empty"},
		"another scheme":           {"routes:\n- functions: [f]\n  url: ftp://u", "line 3: url must begin with http:// or https:// and a host"},
		"no scheme":                {"routes:\n- functions: [f]\n  url: payments:8080", "line 3: url must begin with http:// or https:// and a host"},
		"no host":                  {"routes:\n- functions: [f]\n  url: 'http://:80/'", "line 3: url must begin with http:// or https:// and a host"},
		"no URL":                   {"routes:\n- functions: [f]\n  url: 'http://a b'", "line 3: url must be a URL such as"},
		"credentials":              {"routes:\n- functions: [f]\n  url: http://u:secret@h/", "line 3: url must not contain credentials"},
		"a fragment":               {"routes:\n- functions: [f]\n  url: http://h/#f", "line 3: url must not have a fragment"},
		"a timeout without unit":   {route("  timeout: 30"), "line 4: timeout must be a duration such as 30s, from 1ms to 1h0m0s"},
		"a timeout of zero":        {route("  timeout: 0s"), "line 4: timeout must be a duration"},
		"a negative timeout":       {route("  timeout: -1s"), "line 4: timeout must be a duration"},
		"too long a timeout":       {route("  timeout: 61m"), "line 4: timeout must be a duration"},
		"a timeout that is a list": {route("  timeout: [1s]"), "line 4: timeout must be a duration"},
		"too large":                {strings.Repeat("#", routes.MaxFileBytes+1), "must have at most 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := routes.Parse([]byte(test.file))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%v tells the credentials", err)
			}
		})
	}
}

func TestAllFaultsAreTold(t *testing.T) {
	_, err := routes.Parse([]byte("routes:\n- functions: [a b]\n  timeout: 1\n- url: x\n"))
	const want = `line 2: url is required; line 2: function "a b" must not contain white space or control characters; ` +
		`line 3: timeout must be a duration such as 30s, from 1ms to 1h0m0s; ` +
		`line 4: url must begin with http:// or https:// and a host; line 4: functions is required`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(route("  timeout: 30s")))
	f.Add([]byte("routes:\n- functions: &a ['p.*', \"q\"]\n  url: https://h:1/p?q\n- *a\n"))
	f.Add([]byte("%YAML 1.1\n--- !!map\nroutes: !!seq\n- ? functions\n  : [f]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := routes.Parse(data)
		var problems routes.ParseErrors
		switch {
		case err != nil && (!errors.As(err, &problems) || len(problems) == 0):
			t.Errorf("an error without a reason: %#v", err)
		case err == nil:
			for _, each := range table.Routes() {
				if each.URL == "" || each.Host == "" || each.Timeout < routes.MinTimeout || each.Timeout > routes.MaxTimeout {
					t.Errorf("%+v", each)
				}
			}
			if _, ok := table.Find("forrst.ping"); ok {
				t.Error("a system function is routed")
			}
		}
	})
}
