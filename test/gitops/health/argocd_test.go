package health

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// sample is a state of a Lock and how it is to be shown.
type sample struct {
	InputPath    string       `json:"inputPath"`
	HealthStatus healthStatus `json:"healthStatus"`
	KStatus      string       `json:"kstatus"`
}

type healthStatus struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func TestArgoCDSamples(t *testing.T) {
	for _, sample := range samples(t) {
		t.Run(sample.InputPath, func(t *testing.T) {
			if got := runHealthScript(t, readLock(t, sample.InputPath)); got != sample.HealthStatus {
				t.Errorf("got %+v, want %+v", got, sample.HealthStatus)
			}
		})
	}
}

// The day of a time depends on its zone, so a comparison as text would be wrong.
func TestArgoCDExpiry(t *testing.T) {
	const tolerance = time.Minute
	for _, zone := range []int{-12 * 3600, -5400, 0, 5400, 14 * 3600} {
		for _, format := range []string{time.RFC3339, "2006-01-02T15:04:05.000000Z07:00"} {
			for _, ahead := range []time.Duration{-400 * 24 * time.Hour, -tolerance, tolerance, 366 * 24 * time.Hour} {
				want := "Healthy"
				if ahead < 0 {
					want = "Degraded"
				}
				lock := readLock(t, "held.yaml")
				at := time.Now().Add(ahead).In(time.FixedZone("", zone)).Format(format)
				if err := unstructured.SetNestedField(lock.Object, at, "spec", "expireTime"); err != nil {
					t.Fatal(err)
				}
				if got := runHealthScript(t, lock); got.Status != want {
					t.Errorf("%s is %s, want %s", at, got.Status, want)
				}
			}
		}
	}
}

// Every day of a leap year and the days around the turn of a century, through the script.
func TestArgoCDCalendar(t *testing.T) {
	lock := readLock(t, "held.yaml")
	for _, from := range []string{"2024-01-01T00:00:00Z", "2099-02-01T00:00:00Z"} {
		day, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			day = day.Add(24*time.Hour + 61*time.Second)
			at := day.Format(time.RFC3339)
			if err := unstructured.SetNestedField(lock.Object, at, "spec", "expireTime"); err != nil {
				t.Fatal(err)
			}
			// One second before it expires and when it does.
			for offset, want := range map[int64]string{-1: "Healthy", 0: "Degraded"} {
				if got := runHealthScriptAt(t, lock, day.Unix()+offset); got.Status != want {
					t.Fatalf("%s is %s at %d s, want %s", at, got.Status, offset, want)
				}
			}
		}
	}
}

func runHealthScript(t *testing.T, lock *unstructured.Unstructured) healthStatus {
	t.Helper()
	return runHealthScriptAt(t, lock, time.Now().Unix())
}

// runHealthScriptAt does what Argo CD does where useOpenLibs is set: the libraries of Lua
// are there, the object is the global obj, and the script returns a table.
func runHealthScriptAt(t *testing.T, lock *unstructured.Unstructured, now int64) healthStatus {
	t.Helper()
	configuration := customizations(t)
	if configuration["resource.customizations.useOpenLibs.forrst.dev_Lock"] != "true" {
		t.Fatal("the script has no access to the string library")
	}
	return runScript(t, configuration["resource.customizations.health.forrst.dev_Lock"], lock, now)
}

// runScript runs a health script on an object. Its clock shows now, in seconds since 1970.
func runScript(t *testing.T, script string, object *unstructured.Unstructured, now int64) healthStatus {
	t.Helper()
	state := lua.NewState()
	defer state.Close()
	state.SetContext(t.Context())
	if osLibrary, ok := state.GetGlobal("os").(*lua.LTable); ok {
		osLibrary.RawSetString("time", state.NewFunction(func(state *lua.LState) int {
			state.Push(lua.LNumber(now))
			return 1
		}))
	}
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned a %s, want a table", state.Get(-1).Type())
	}
	return healthStatus{Status: result.RawGetString("status").String(), Message: result.RawGetString("message").String()}
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, member := range value {
			table.RawSetString(key, luaValue(state, member))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, member := range value {
			table.Append(luaValue(state, member))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// customizations is the data of the ConfigMap that users patch into theirs.
func customizations(t *testing.T) map[string]string {
	t.Helper()
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	unmarshal(t, filepath.Join("..", "..", "..", "config", "argocd", "argocd-cm.yaml"), &configMap)
	return configMap.Data
}

func samples(t *testing.T) []sample {
	t.Helper()
	var file struct {
		Tests []sample `json:"tests"`
	}
	unmarshal(t, filepath.Join("testdata", "health_test.yaml"), &file)
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Tests) != len(inputs)-1 {
		t.Fatalf("there are %d states and %d expectations", len(inputs)-1, len(file.Tests))
	}
	return file.Tests
}

func readLock(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return read(t, name)
}

// read reads an object from a path below testdata.
func read(t *testing.T, path ...string) *unstructured.Unstructured {
	t.Helper()
	var text json.RawMessage
	unmarshal(t, filepath.Join("testdata", filepath.Join(path...)), &text)
	object := &unstructured.Unstructured{}
	// Unlike a plain decoder, this reads whole numbers as clients of Kubernetes do.
	if err := object.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return object
}

func unmarshal(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
