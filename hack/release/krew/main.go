// Command krew packs the binaries of kubectl-lock into archives, and writes the manifest of the plugin with
// their sums, as krew wants them.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// options say what to pack.
type options struct {
	// manifest is the plugin with placeholders. License goes into each archive: krew's index asks for it.
	manifest, license string
	// binaries is a folder with kubectl-lock-OS-ARCH, with .exe for Windows.
	binaries string
	// version is such as v0.1.0, and url where the archives will be.
	version, url string
	// out is the folder for the archives and lock.yaml.
	out string
}

func main() {
	var o options
	flag.StringVar(&o.manifest, "manifest", "lock.yaml", "the manifest with placeholders")
	flag.StringVar(&o.license, "license", "../../../LICENSE", "the licence")
	flag.StringVar(&o.binaries, "binaries", "", "folder with kubectl-lock-OS-ARCH")
	flag.StringVar(&o.version, "version", "", "version of the plugin, such as v0.1.0")
	flag.StringVar(&o.url, "url", "", "where the archives will be, without their names")
	flag.StringVar(&o.out, "out", "", "folder for the archives and lock.yaml")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	if o.binaries == "" || o.version == "" || o.url == "" || o.out == "" {
		return errors.New("-binaries, -version, -url and -out are required")
	}
	content, err := os.ReadFile(o.manifest)
	if err != nil {
		return err
	}
	var plugin map[string]any
	if err := yaml.Unmarshal(content, &plugin); err != nil {
		return fmt.Errorf("%s: %w", o.manifest, err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := o.fill(plugin); err != nil {
		return err
	}
	if content, err = yaml.Marshal(plugin); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "lock.yaml"), content, 0o644)
}

// fill packs the archive of each platform of the manifest and replaces the placeholders.
func (o *options) fill(plugin map[string]any) error {
	spec, isMap := plugin["spec"].(map[string]any)
	if !isMap {
		return errors.New("the manifest has no spec")
	}
	spec["version"] = o.version
	platforms, isList := spec["platforms"].([]any)
	if !isList || len(platforms) == 0 {
		return errors.New("the manifest has no platforms")
	}
	for index, each := range platforms {
		platform, isMap := each.(map[string]any)
		if !isMap {
			return fmt.Errorf("platform %d is no object", index)
		}
		system, architecture, err := selected(platform)
		if err != nil {
			return fmt.Errorf("platform %d: %w", index, err)
		}
		name := fmt.Sprintf("kubectl-lock-%s-%s", system, architecture)
		bin, _ := platform["bin"].(string)
		sum, err := o.pack(name, bin)
		if err != nil {
			return err
		}
		platform["uri"], platform["sha256"] = o.url+"/"+name+".tar.gz", sum
	}
	return nil
}

func selected(platform map[string]any) (system, architecture string, err error) {
	selector, _ := platform["selector"].(map[string]any)
	labels, _ := selector["matchLabels"].(map[string]any)
	system, hasSystem := labels["os"].(string)
	architecture, hasArchitecture := labels["arch"].(string)
	if !hasSystem || !hasArchitecture {
		return "", "", errors.New("it selects no os and arch")
	}
	return system, architecture, nil
}

// pack writes an archive of the binary, under the name bin, and the licence. The same content makes the
// same archive: there are no times in it.
func (o *options) pack(name, bin string) (sum string, err error) {
	source := filepath.Join(o.binaries, name+filepath.Ext(bin))
	file, err := os.Create(filepath.Join(o.out, name+".tar.gz"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	digest := sha256.New()
	compressed := gzip.NewWriter(io.MultiWriter(file, digest))
	archive := tar.NewWriter(compressed)
	for _, entry := range []struct {
		source, name string
		mode         int64
	}{{source, bin, 0o755}, {o.license, "LICENSE", 0o644}} {
		if err := add(archive, entry.source, entry.name, entry.mode); err != nil {
			return "", err
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func add(archive *tar.Writer, source, name string, mode int64) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}
