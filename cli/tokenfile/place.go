package tokenfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Place is where a command keeps a [Proof]: a file or, if Descriptor is set, a file descriptor.
type Place struct {
	// Path of the file.
	Path string
	// Descriptor is a file descriptor that the process has inherited, such as 3. Nil for a file.
	Descriptor *int
	// IsPrivate says that the folders of Path are made, with access for the user alone, if they are
	// not there, and refused if other users have access.
	IsPrivate bool
}

// ErrNoFolder means that there is no folder for the tokens of the user.
var ErrNoFolder = errors.New("neither XDG_RUNTIME_DIR nor a home folder is known to keep the owner token in")

// Default returns the place for the lock in the user's private folder: below XDG_RUNTIME_DIR if the
// system has it, else below the user's configuration. The server, such as its URL, keeps apart locks of
// several clusters. Getenv reads the environment. The error matches [ErrNoFolder].
func Default(getenv func(string) string, server, namespace string, key v1alpha1.FullKey) (Place, error) {
	folder := getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(folder); !filepath.IsAbs(folder) || err != nil || !info.IsDir() {
		if folder, err = os.UserConfigDir(); err != nil {
			return Place{}, fmt.Errorf("%w: %w", ErrNoFolder, err)
		}
	}
	if namespace == "" {
		namespace = "_" // no namespace has this name
	}
	sum := sha256.Sum256([]byte(server))
	return Place{
		Path:      filepath.Join(folder, "kubectl-lock", hex.EncodeToString(sum[:8]), namespace, key.ObjectName()),
		IsPrivate: true,
	}, nil
}

// String says where it is, for messages.
func (p Place) String() string {
	if p.Descriptor != nil {
		return fmt.Sprintf("file descriptor %d", *p.Descriptor)
	}
	return p.Path
}

// Read reads the proof. The error matches [fs.ErrNotExist] if there is none.
func (p Place) Read() (Proof, error) {
	file, err := p.open()
	if err != nil {
		return Proof{}, err
	}
	defer func() { _ = file.Close() }()
	proof, err := Read(file)
	if err != nil {
		return Proof{}, fmt.Errorf("%s: %w", p, err)
	}
	return proof, nil
}

func (p Place) open() (*os.File, error) {
	if p.Descriptor != nil {
		return openDescriptor(*p.Descriptor)
	}
	if p.IsPrivate {
		if err := checkPrivate(p.folders()); err != nil {
			return nil, err
		}
	}
	return os.Open(p.Path)
}

// Remove removes the file if it has the proof: by the time that a grant has ended, there may be the proof of the next one. A
// descriptor has no file, and a file that is gone is no error.
func (p Place) Remove(proof Proof) error {
	if p.Descriptor != nil {
		return nil
	}
	found, err := p.Read()
	if err == nil && found == proof {
		err = os.Remove(p.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// folders are the folders that a private place makes, outermost first.
func (p Place) folders() []string {
	inner := filepath.Dir(p.Path)
	middle := filepath.Dir(inner)
	return []string{filepath.Dir(middle), middle, inner}
}

// Draft is a place that a proof will be written to. It is made before a lock is taken, so that a lock
// whose proof could not be kept is not taken at all.
type Draft struct {
	place Place
	file  *os.File
}

// Prepare returns a draft. What is at the place stays until [Draft.Keep]. The caller has to call Keep or
// [Draft.Drop].
func (p Place) Prepare() (*Draft, error) {
	if p.Descriptor != nil {
		file, err := openDescriptor(*p.Descriptor)
		if err != nil {
			return nil, err
		}
		return &Draft{place: p, file: file}, nil
	}
	if p.IsPrivate {
		// A new user has no folder for configuration yet.
		if err := os.MkdirAll(filepath.Dir(p.folders()[0]), 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for the owner token: %w", err)
		}
		for _, folder := range p.folders() {
			if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make the folder for the owner token: %w", err)
			}
		}
		if err := checkPrivate(p.folders()); err != nil {
			return nil, err
		}
	}
	if info, err := os.Lstat(p.Path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file, so no owner token is written to it; --owner-fd writes to a descriptor", p.Path)
	}
	// CreateTemp makes the file with mode 0600, and never follows a link that is there.
	file, err := os.CreateTemp(filepath.Dir(p.Path), ".kubectl-lock-*")
	if err != nil {
		return nil, fmt.Errorf("make the file for the owner token: %w", err)
	}
	return &Draft{place: p, file: file}, nil
}

// Keep writes the proof and puts it in place, as a whole or not at all.
func (d *Draft) Keep(proof Proof) error {
	err := proof.Write(d.file)
	if closed := d.file.Close(); err == nil {
		err = closed
	}
	if err == nil && d.place.Descriptor == nil {
		err = os.Rename(d.file.Name(), d.place.Path)
	}
	if err != nil {
		d.remove()
		return fmt.Errorf("write the owner token to %s: %w", d.place, err)
	}
	return nil
}

// Drop removes what was prepared, without a proof.
func (d *Draft) Drop() {
	_ = d.file.Close()
	d.remove()
}

func (d *Draft) remove() {
	if d.place.Descriptor == nil {
		_ = os.Remove(d.file.Name())
	}
}

// openDescriptor returns a copy-free file for a descriptor that the process has inherited.
func openDescriptor(descriptor int) (*os.File, error) {
	if descriptor < 0 {
		return nil, fmt.Errorf("file descriptor %d is negative", descriptor)
	}
	file := os.NewFile(uintptr(descriptor), fmt.Sprintf("descriptor %d", descriptor))
	if file == nil {
		return nil, fmt.Errorf("file descriptor %d is not valid", descriptor)
	}
	if _, err := file.Stat(); err != nil {
		return nil, fmt.Errorf("file descriptor %d is not open: redirect it, as in %d>token", descriptor, descriptor)
	}
	return file, nil
}
