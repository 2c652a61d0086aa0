package testenv

import (
	"net"
	"strconv"

	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/server"
)

// WebhookClient returns the files of the certificate that the API server presents to webhooks.
func (e *Environment) WebhookClient() admissionclient.Files { return e.clients }

// NewWebhookServer returns a server for the webhooks, at the address and with the certificate that
// [Environment.InstallWebhook] has returned. It serves the API server and no other client.
func (e *Environment) NewWebhookServer(host string, port int, certDir string) (*server.Server, error) {
	return server.New(server.Options{
		Address:     net.JoinHostPort(host, strconv.Itoa(port)),
		CertDir:     certDir,
		ClientCA:    e.clients.Authority,
		ClientNames: []string{admissionclient.Name},
		Reviews:     webhook.ReviewCosts(),
	})
}

// WebhookFlags are the flags with which the operator's program serves the webhooks there.
func (e *Environment) WebhookFlags(host string, port int, certDir string) []string {
	return []string{
		"--webhook-bind-address=" + net.JoinHostPort(host, strconv.Itoa(port)), "--webhook-cert-dir=" + certDir,
		"--webhook-client-ca=" + e.clients.Authority, "--webhook-client-names=" + admissionclient.Name,
		"--webhook-shutdown-delay=0s", "--webhook-drain-timeout=0s",
	}
}
