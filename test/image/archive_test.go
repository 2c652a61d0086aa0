package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder has what "make image" built.
const folder = "../../bin/image"

// blobs are the files of an OCI archive by their digests.
type blobs map[string][]byte

// descriptor names a blob.
type descriptor struct {
	Digest   string `json:"digest"`
	Platform struct {
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// index lists images, or indexes.
type index struct {
	Manifests []descriptor `json:"manifests"`
}

// imageConfig is the configuration of an image.
type imageConfig struct {
	Architecture string `json:"architecture"`
	Created      string `json:"created"`
	Config       struct {
		User       string            `json:"User"`
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
}

// platformImage is one image of an archive.
type platformImage struct {
	config imageConfig
	// program is the file that the image starts.
	program []byte
}

// open returns the images of an archive by architecture, and the digest of all of them.
func open(t *testing.T, archive string) (images map[string]platformImage, digest string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatalf("%v; \"make image\" makes it", err)
	}
	defer func() { _ = file.Close() }()
	files := unpack(t, file)
	contents := blobs{}
	for name, content := range files {
		if hash, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			contents["sha256:"+hash] = content
		}
	}
	var all, platforms index
	decode(t, files["index.json"], &all)
	if len(all.Manifests) != 1 {
		t.Fatalf("%s has %d entries, want one index", archive, len(all.Manifests))
	}
	digest = all.Manifests[0].Digest
	decode(t, contents[digest], &platforms)
	images = map[string]platformImage{}
	for _, platform := range platforms.Manifests {
		images[platform.Platform.Architecture] = contents.image(t, platform.Digest)
	}
	return images, digest
}

// image reads the image of a manifest.
func (b blobs) image(t *testing.T, digest string) platformImage {
	t.Helper()
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	decode(t, b[digest], &manifest)
	var image platformImage
	decode(t, b[manifest.Config.Digest], &image.config)
	if len(image.config.Config.Entrypoint) != 1 {
		t.Fatalf("the image starts %q, want one program", image.config.Config.Entrypoint)
	}
	for _, layer := range manifest.Layers {
		unzipped, err := gzip.NewReader(bytes.NewReader(b[layer.Digest]))
		if err != nil {
			t.Fatal(err)
		}
		if program, ok := unpack(t, unzipped)[strings.TrimPrefix(image.config.Config.Entrypoint[0], "/")]; ok {
			image.program = program
		}
	}
	return image
}

// unpack returns the regular files of an archive.
func unpack(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[filepath.Clean(header.Name)], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%v in %q", err, content)
	}
}

// machines are those of the platforms that "make image" builds for. PLATFORMS in the environment names fewer.
func machines() map[string]elf.Machine {
	all := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if platforms := os.Getenv("PLATFORMS"); platforms != "" {
		maps.DeleteFunc(all, func(architecture string, _ elf.Machine) bool {
			return !strings.Contains(platforms, "linux/"+architecture)
		})
	}
	return all
}

func TestImagesHaveOneStaticProgramForEachPlatform(t *testing.T) {
	for _, title := range []string{"lock-operator", "kubectl-lock"} {
		images, _ := open(t, filepath.Join(folder, title+".tar"))
		if len(images) != len(machines()) {
			t.Errorf("the archive has %d images, want %d", len(images), len(machines()))
		}
		for architecture, machine := range machines() {
			t.Run(title+" for "+architecture, func(t *testing.T) {
				image, ok := images[architecture]
				if !ok {
					t.Fatalf("the archive has no such image")
				}
				checkConfig(t, image.config, title, architecture)
				program, err := elf.NewFile(bytes.NewReader(image.program))
				if err != nil {
					t.Fatal(err)
				}
				if program.Machine != machine {
					t.Errorf("the program is for %s, want %s", program.Machine, machine)
				}
				for _, part := range program.Progs {
					if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
						t.Errorf("the program is not static: it has a %s", part.Type)
					}
				}
			})
		}
	}
}

func checkConfig(t *testing.T, config imageConfig, title, architecture string) {
	t.Helper()
	if config.Architecture != architecture {
		t.Errorf("the architecture is %s, want %s", config.Architecture, architecture)
	}
	// Kubernetes checks runAsNonRoot by a number only.
	if config.Config.User != "65532:65532" {
		t.Errorf("the user is %q, want a number other than 0", config.Config.User)
	}
	const prefix = "org.opencontainers.image."
	labels := config.Config.Labels
	for name, want := range map[string]string{
		"title": title, "source": "https://forrst.dev/lock-operator", "licenses": "Apache-2.0", "created": config.Created,
	} {
		if got := labels[prefix+name]; got != want {
			t.Errorf("label %s = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"version", "revision", "created"} {
		if labels[prefix+name] == "" {
			t.Errorf("the image has no label %s", name)
		}
	}
}
