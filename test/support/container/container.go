// Package container runs images of this project on machines without a container daemon, with
// Debian's podman and runc. It needs root.
package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Store holds images and containers apart from those of the machine.
type Store struct {
	folder string
}

// NewStore returns an empty store. The caller closes it.
func NewStore() (*Store, error) {
	folder, err := os.MkdirTemp("", "lock-operator-containers-")
	if err != nil {
		return nil, err
	}
	return &Store{folder: folder}, nil
}

// Close ends all containers of the store and removes it.
func (s *Store) Close() error {
	_, err := s.run(context.Background(), "rm", "--all", "--force", "--time=0")
	_, unmountErr := s.run(context.Background(), "umount", "--all", "--force")
	return errors.Join(err, unmountErr, os.RemoveAll(s.folder))
}

// Load loads the image for this machine's platform from an OCI archive and returns its name.
func (s *Store) Load(ctx context.Context, archive string) (string, error) {
	output, err := s.run(ctx, "load", "--quiet", "--input", archive)
	if err != nil {
		return "", err
	}
	_, name, found := strings.Cut(output, "Loaded image: ")
	if !found {
		return "", fmt.Errorf("loading %s: podman says %q", archive, output)
	}
	return strings.TrimSpace(name), nil
}

// Options say how to run a container. All of them run read-only and without capabilities.
type Options struct {
	Name, Image string
	Arguments   []string
	Environment map[string]string
	// Mounts are files and folders of the machine by their paths in the container, which cannot
	// write them.
	Mounts map[string]string
	// Hosts are addresses by names, for /etc/hosts of a container with a network of its own.
	Hosts map[string]string
	// Network is "host", or "ns:" and the path of a network namespace.
	Network string
	// Memory is the limit in bytes.
	Memory int64
	// Log gets what the container writes.
	Log io.Writer
}

// A Container is one that was started.
type Container struct {
	store   *Store
	name    string
	command *exec.Cmd
	exited  chan struct{}
	err     error
}

// Start starts a container. It outlives the context's end.
func (s *Store) Start(options Options) (*Container, error) {
	arguments := append(s.flags(), "run", "--rm", "--name="+options.Name, "--network="+options.Network, "--log-driver=none",
		"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		// Those of the machine, which podman would pass on, may be more than it lets a container have.
		"--ulimit=nofile=10000:10000", "--ulimit=nproc=10000:10000",
		"--memory="+strconv.FormatInt(options.Memory, 10))
	for _, name := range slices.Sorted(maps.Keys(options.Environment)) {
		arguments = append(arguments, "--env="+name+"="+options.Environment[name])
	}
	for _, path := range slices.Sorted(maps.Keys(options.Mounts)) {
		arguments = append(arguments, "--volume="+options.Mounts[path]+":"+path+":ro")
	}
	for _, name := range slices.Sorted(maps.Keys(options.Hosts)) {
		arguments = append(arguments, "--add-host="+name+":"+options.Hosts[name])
	}
	command := exec.Command("podman", slices.Concat(arguments, []string{options.Image}, options.Arguments)...)
	command.Stdout, command.Stderr = options.Log, options.Log
	// Signals for the test are not for the container.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting podman: %w", err)
	}
	c := &Container{store: s, name: options.Name, command: command, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		c.err = command.Wait()
	}()
	return c, nil
}

// Exited is closed when the container has ended.
func (c *Container) Exited() <-chan struct{} { return c.exited }

// Stop ends the container with SIGTERM, or with SIGKILL after the grace period, and returns how it ended:
// nil with the status 0.
func (c *Container) Stop(ctx context.Context, grace time.Duration) error {
	// The image has no shell in which podman could wait.
	_, err := c.store.run(ctx, "stop", "--ignore", "--time="+strconv.Itoa(int(grace.Seconds())), c.name)
	select {
	case <-c.exited:
		return c.err
	case <-time.After(grace):
		return errors.Join(err, fmt.Errorf("container %s did not end", c.name))
	}
}

// flags are those of every podman command.
func (s *Store) flags() []string {
	return []string{
		"--root=" + s.folder + "/root", "--runroot=" + s.folder + "/run", "--tmpdir=" + s.folder + "/tmp",
		"--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none", "--log-level=error",
	}
}

func (s *Store) run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "podman", append(s.flags(), arguments...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("podman %s: %w: %s", arguments[0], err, output)
	}
	return string(output), nil
}
