package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/servertime"
)

// peersServerName is the name in the certificate of the replicas.
const peersServerName = "replicas.robustness"

// shareLines makes the queues of the engine lines that this replica shares with those that a file of the test
// names. It returns the address for them.
func shareLines(manager ctrl.Manager, settings settings, now clock.WithTicker, locks *engine.Engine) (lock.Backend, string, error) {
	logger := manager.GetLogger().WithName("peers")
	in := func(name string) string { return filepath.Join(settings.peersFolder, name) }
	shared, err := line.New(line.Options{Local: locks, Self: settings.name, Clock: now, Logger: logger})
	if err != nil {
		return nil, "", err
	}
	certificate, err := tls.LoadX509KeyPair(in("tls.crt"), in("tls.key"))
	if err != nil {
		return nil, "", err
	}
	access, err := auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{Audiences: []string{peers.Audience}})
	if err != nil {
		return nil, "", err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", settings.peersAddress)
	if err != nil {
		return nil, "", err
	}
	service, err := peers.NewService(peers.Options{
		Line: shared, Listener: listener, Access: access, User: operatorUser, Logger: logger,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
	})
	if err != nil {
		return nil, "", err
	}
	watch, err := peers.NewWatch(peers.WatchOptions{
		Source: peers.FromFile(in(settings.name+".yaml"), servertime.Timers(now), logger), Line: shared, Logger: logger,
		TokenFile: in("token"), AuthorityFile: in("tls.crt"), ServerName: peersServerName,
	})
	return shared, listener.Addr().String(), errors.Join(err, manager.Add(shared), manager.Add(service), manager.Add(watch))
}
