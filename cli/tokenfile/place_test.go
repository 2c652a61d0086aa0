package tokenfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/tokenfile"
)

var proof = tokenfile.Proof{
	Namespace: "shop", Key: v1alpha1.FullKeyOf("billing:report"), Owner: "550e8400-e29b", FencingToken: 214,
}

func defaultPlace(t *testing.T) tokenfile.Place {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	place, err := tokenfile.Default(os.Getenv, "https://example.com", "shop", proof.Key)
	if err != nil {
		t.Fatal(err)
	}
	return place
}

func keep(t *testing.T, place tokenfile.Place) {
	t.Helper()
	draft, err := place.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if err := draft.Keep(proof); err != nil {
		t.Fatal(err)
	}
}

func TestKeepsAProofThatOnlyTheUserMayRead(t *testing.T) {
	place := defaultPlace(t)
	keep(t, place)
	read, err := place.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(proof, read); diff != "" {
		t.Error(diff)
	}
	if runtime.GOOS == "windows" {
		return
	}
	info, err := os.Stat(place.Path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %o", mode)
	}
}

func TestKeepsAProofOfAUserWithoutAConfiguration(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(name, home)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	place, err := tokenfile.Default(os.Getenv, "https://example.com", "shop", proof.Key)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, place)
	if _, err := place.Read(); err != nil {
		t.Error(err)
	}
}

func TestKeepsAFileThatWasThereUntilTheProofIsWritten(t *testing.T) {
	place := tokenfile.Place{Path: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(place.Path, []byte("former\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	draft, err := place.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	draft.Drop()
	if read, err := place.Read(); err != nil || read.Owner != "former" {
		t.Errorf("after a draft was dropped: %v, %v", read.Owner, err)
	}
	keep(t, place)
	info, err := os.Stat(place.Path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o600 {
		t.Errorf("the file that was readable by all users still has mode %o", mode)
	}
	entries, err := os.ReadDir(filepath.Dir(place.Path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files are left over: %v, %v", entries, err)
	}
}

func TestKeepsLocksApart(t *testing.T) {
	first := defaultPlace(t)
	for _, other := range []struct {
		server, namespace string
		key               v1alpha1.FullKey
	}{
		{"https://other.example.com", "shop", proof.Key},
		{"https://example.com", "payments", proof.Key},
		{"https://example.com", "", proof.Key},
		{"https://example.com", "shop", v1alpha1.FullKeyOf("billing--report")},
		{"https://example.com", "shop", v1alpha1.FullKeyOf("../../" + strings.Repeat("x", 500))},
	} {
		place, err := tokenfile.Default(os.Getenv, other.server, other.namespace, other.key)
		if err != nil {
			t.Fatal(err)
		}
		if place.Path == first.Path {
			t.Errorf("%v has the same file", other)
		}
		keep(t, place)
	}
}

func TestRead(t *testing.T) {
	for text, want := range map[string]tokenfile.Proof{
		"plain":                     {Owner: "plain"},
		"plain\n":                   {Owner: "plain"},
		"plain\r\n":                 {Owner: "plain"},
		" two words \n\n":           {Owner: " two words \n"},
		`{"owner": "a"}`:            {Owner: "a"},
		`{"other": "a"}`:            {Owner: `{"other": "a"}`},
		"123":                       {Owner: "123"},
		"{\"owner\":\"a\",\"x\":1}": {Owner: "a"},
	} {
		if got, err := tokenfile.Read(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", text, got.Owner, err)
		}
	}
	for _, text := range []string{"", "\n", "secret\xff", strings.Repeat("secret", 100), strings.Repeat("secret", 10_000)} {
		if _, err := tokenfile.Read(strings.NewReader(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

func TestTellsNoToken(t *testing.T) {
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, proof); strings.Contains(text, proof.Owner) {
			t.Errorf("%s shows the owner token: %s", format, text)
		}
	}
}

func TestIsFor(t *testing.T) {
	for _, each := range []struct {
		proof   tokenfile.Proof
		isOther bool
	}{
		{proof, false},
		{tokenfile.Proof{Owner: "bare"}, false},
		{tokenfile.Proof{Key: proof.Key, Namespace: "payments"}, true},
		{tokenfile.Proof{Key: "lock:other", Namespace: "shop"}, true},
	} {
		if err := each.proof.IsFor("shop", proof.Key); errors.Is(err, tokenfile.ErrOtherLock) != each.isOther {
			t.Errorf("%v: %v", each.proof, err)
		}
	}
	if err := proof.IsFor("", proof.Key); err != nil {
		t.Errorf("in the caller's own namespace: %v", err)
	}
}

func TestRemove(t *testing.T) {
	place := defaultPlace(t)
	keep(t, place)
	for range 2 {
		if err := place.Remove(proof); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := place.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed token: %v", err)
	}
}

func TestRemovesNoOtherProof(t *testing.T) {
	place := defaultPlace(t)
	keep(t, place)
	former := proof
	former.FencingToken--
	if err := place.Remove(former); err != nil {
		t.Fatal(err)
	}
	if read, err := place.Read(); err != nil || read != proof {
		t.Errorf("after the end of a former grant: %v, %v", read, err)
	}
}
