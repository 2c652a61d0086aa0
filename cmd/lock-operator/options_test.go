package main

import (
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
)

func parse(arguments ...string) (options, error) {
	var settings options
	flags := flag.NewFlagSet("lock-operator", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	settings.bindFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return settings, err
	}
	err := settings.validate(flags.Args())
	return settings, err
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		arguments []string
		want      string
	}{
		"the defaults":                       {},
		"one component":                      {arguments: []string{"--components=controller"}},
		"a lower maximum":                    {arguments: []string{"--max-ttl=10m", "--default-ttl=10m"}},
		"a component that does not exist":    {arguments: []string{"--components=controller,janitor"}, want: `--components: "janitor" is none of`},
		"no component":                       {arguments: []string{"--components="}, want: "--components"},
		"an argument":                        {arguments: []string{"run"}, want: `unexpected argument "run"`},
		"a maximum over the schema's":        {arguments: []string{"--max-ttl=25h"}, want: "--max-ttl"},
		"more kinds of holders":              {arguments: []string{"--holder-kinds=Deployment.apps,ConfigMap"}},
		"a kind of holder that is none":      {arguments: []string{"--holder-kinds=apps/Deployment"}, want: "is not a kind with its group"},
		"a maximum of zero":                  {arguments: []string{"--max-ttl=0s"}, want: "--max-ttl"},
		"no fixed time":                      {arguments: []string{"--max-expire-ahead=0"}},
		"a fixed time in the past":           {arguments: []string{"--max-expire-ahead=-1s"}, want: "--max-expire-ahead"},
		"no renewals by the operator":        {arguments: []string{"--max-operator-renewal=0"}},
		"renewals of a negative time":        {arguments: []string{"--max-operator-renewal=-1s"}, want: "--max-operator-renewal"},
		"a fixed time beyond a year":         {arguments: []string{"--max-expire-ahead=8785h"}, want: "--max-expire-ahead"},
		"a default over the maximum":         {arguments: []string{"--max-ttl=1m"}, want: "--default-ttl"},
		"a negative allowance":               {arguments: []string{"--clock-skew-allowance=-1s"}, want: "--clock-skew-allowance"},
		"an open façade on all interfaces":   {arguments: []string{"--facade-auth=none", "--facade-bind-address=:8080"}, want: "--facade-bind-address"},
		"a façade on all interfaces":         {arguments: []string{"--facade-bind-address=:8080"}, want: "--facade-insecure-plaintext"},
		"… that is said to be insecure":      {arguments: []string{"--facade-bind-address=:8080", "--facade-insecure-plaintext"}},
		"… with TLS":                         {arguments: []string{"--facade-bind-address=:8080", "--facade-tls-cert-file=a", "--facade-tls-key-file=b"}},
		"tokens without TLS on loopback":     {arguments: []string{"--facade-bind-address=[::1]:8080"}},
		"an open façade is never insecure":   {arguments: []string{"--facade-auth=none", "--facade-bind-address=:8080", "--facade-insecure-plaintext"}, want: "loopback"},
		"an invalid address":                 {arguments: []string{"--facade-bind-address=8080"}, want: "--facade-bind-address"},
		"an open façade on loopback":         {arguments: []string{"--facade-auth=none"}},
		"Jobs in the lines of the façade":    {arguments: []string{"--components=controller", "--peers-token-file=a", "--peers-authority-file=b"}},
		"… without an authority":             {arguments: []string{"--components=controller", "--peers-token-file=a"}, want: "--peers-authority-file"},
		"… which no one names":               {arguments: []string{"--components=controller", "--peers-token-file=a", "--peers-authority-file=b", "--peers-service="}, want: "--peers-service"},
		"an unknown way to authenticate":     {arguments: []string{"--facade-auth=basic"}, want: "--facade-auth"},
		"two audiences":                      {arguments: []string{"--facade-audiences=a,b"}},
		"an empty audience":                  {arguments: []string{"--facade-audiences=a,"}, want: "--facade-audiences"},
		"no audience":                        {arguments: []string{"--facade-audiences="}, want: "--facade-audiences"},
		"audiences without authentication":   {arguments: []string{"--facade-auth=none", "--facade-audiences=a"}, want: "--facade-audiences"},
		"an open façade on another address":  {arguments: []string{"--facade-auth=none", "--facade-bind-address=10.0.0.1:8080"}, want: "loopback"},
		"an open façade on IPv6 loopback":    {arguments: []string{"--facade-auth=none", "--facade-bind-address=[::1]:8080"}},
		"any number of locks and Jobs":       {arguments: []string{"--max-locks-per-namespace=0", "--max-jobs-per-namespace=0"}},
		"a negative number of locks":         {arguments: []string{"--max-locks-per-namespace=-1"}, want: "--max-locks-per-namespace:"},
		"a negative number of Jobs":          {arguments: []string{"--max-jobs-per-namespace=-1"}, want: "--max-jobs-per-namespace:"},
		"a wait of zero":                     {arguments: []string{"--facade-max-block=0s"}, want: "--facade-max-block"},
		"a wait of more than a day":          {arguments: []string{"--facade-max-block=25h"}, want: "--facade-max-block"},
		"another address without the façade": {arguments: []string{"--components=webhook", "--facade-auth=none", "--facade-bind-address=10.0.0.1:8080"}},
		"a webhook address without a port":   {arguments: []string{"--webhook-bind-address=127.0.0.1"}, want: "--webhook-bind-address"},
		"a webhook address with a bad port":  {arguments: []string{"--webhook-bind-address=127.0.0.1:99999"}, want: "--webhook-bind-address"},
		"names of clients":                   {arguments: []string{"--webhook-client-ca=a", "--webhook-client-names=b,c"}},
		"names of clients without authority": {arguments: []string{"--webhook-client-names=b"}, want: "--webhook-client-names: needs --webhook-client-ca"},
		"an empty name of clients":           {arguments: []string{"--webhook-client-ca=a", "--webhook-client-names=b,"}, want: "--webhook-client-names"},
		"no connections to the webhook":      {arguments: []string{"--webhook-max-connections=0"}, want: "--webhook-max-connections:"},
		"no requests for reviews":            {arguments: []string{"--webhook-max-requests=1"}, want: "--webhook-max-requests:"},
		"no room for a review":               {arguments: []string{"--webhook-max-memory-bytes=389939199"}, want: "--webhook-max-memory-bytes: must be at least 389939200"},
		"a certificate without a key":        {arguments: []string{"--facade-tls-cert-file=a"}, want: "--facade-tls-key-file"},
		"a key without a certificate":        {arguments: []string{"--facade-tls-key-file=a"}, want: "--facade-tls-cert-file"},
		"a certificate with its key":         {arguments: []string{"--facade-tls-cert-file=a", "--facade-tls-key-file=b"}},
		"certificates for an hour":           {arguments: []string{"--certificate-authority=a", "--issue-certificate=b", "--certificate-lifetime=1h", "--authority-lifetime=1h"}},
		"certificates for less":              {arguments: []string{"--certificate-authority=a", "--issue-certificate=b", "--certificate-lifetime=59m"}, want: "--certificate-lifetime, --authority-lifetime: 59m0s is less than 1h"},
		"a negative life of the authority":   {arguments: []string{"--certificate-authority=a", "--issue-certificate=b", "--authority-lifetime=-1s"}, want: "--authority-lifetime"},
		"no call may be in flight":           {arguments: []string{"--facade-max-in-flight=0"}, want: "--facade-max-in-flight:"},
		"no share":                           {arguments: []string{"--facade-shares=0"}, want: "--facade-shares:"},
		"a negative rate of a caller":        {arguments: []string{"--facade-max-rate-per-caller=-1"}, want: "--facade-max-rate-per-caller:"},
		"a negative share of connections":    {arguments: []string{"--facade-max-connections-per-address=-1"}, want: "--facade-max-connections-per-address:"},
		"no bounds of callers":               {arguments: []string{"--facade-max-rate-per-caller=0", "--facade-shares=1"}},
		"no connections":                     {arguments: []string{"--facade-max-connections=0"}, want: "--facade-max-connections:"},
		"no room for a request":              {arguments: []string{"--facade-max-body-bytes=1048575"}, want: "--facade-max-body-bytes: must be at least 1048576"},
		"a negative delay":                   {arguments: []string{"--facade-shutdown-delay=-1s"}, want: "--facade-shutdown-delay"},
		"a negative delay of the webhook":    {arguments: []string{"--webhook-shutdown-delay=-1s"}, want: "--webhook-shutdown-delay"},
		"a negative drain of the webhook":    {arguments: []string{"--webhook-drain-timeout=-1s"}, want: "--webhook-drain-timeout"},
		"no delay":                           {arguments: []string{"--facade-shutdown-delay=0s"}},
		"no time to drain":                   {arguments: []string{"--facade-drain-timeout=0s"}, want: "--facade-drain-timeout"},
		"a flag that does not exist":         {arguments: []string{"--colour"}, want: "colour"},
		"an invalid duration":                {arguments: []string{"--default-ttl=soon"}, want: "default-ttl"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.arguments...)
			if test.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// Programs of one machine are not told apart, and have the whole together.
func TestWithoutAuthenticationThereAreNoShares(t *testing.T) {
	settings, err := parse("--facade-auth=none", "--facade-max-connections=50")
	if err != nil {
		t.Fatal(err)
	}
	settings.facadeServer.withoutShares()
	if got := settings.facadeServer; got.maxConnectionsPerAddress != 50 || got.calls != (limits.Limits{InFlight: limits.DefaultMaxInFlight, BodyBytes: limits.DefaultMaxBodyBytes, Shares: 1}) {
		t.Errorf("got %+v", got)
	}
	if got, want := settings.facadeServer.line, (engine.WaiterLimits{PerLock: defaultLinePerLock}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// deployed returns the Deployment of a component, and its flags.
func deployed(t *testing.T, name string) (appsv1.Deployment, options) {
	t.Helper()
	content, err := os.ReadFile("../../config/manager/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(content, &deployment); err != nil {
		t.Fatal(err)
	}
	settings, err := parse(deployment.Spec.Template.Spec.Containers[0].Args...)
	if err != nil {
		t.Fatal(err)
	}
	return deployment, settings
}

func TestEachComponentExpectsRecordsOfItsPath(t *testing.T) {
	for components, want := range map[string][]audit.Via{
		facadeComponent:                  {audit.Facade},
		webhookComponent:                 {audit.Admission},
		strings.Join(allComponents, ","): {audit.Admission, audit.Controller, audit.Facade},
		controllerComponent:              {audit.Controller},
	} {
		settings := options{components: components}
		if got := slices.Sorted(slices.Values(settings.vias())); !slices.Equal(got, want) {
			t.Errorf("%s: %v", components, got)
		}
	}
}

func TestDeploymentsUseFlagsThatExist(t *testing.T) {
	for name, component := range map[string]string{
		"facade": facadeComponent, "controllers": controllerComponent, "webhook": webhookComponent,
	} {
		t.Run(name, func(t *testing.T) {
			deployment, settings := deployed(t, name)
			if settings.components != component {
				t.Errorf("runs %q, want %q alone", settings.components, component)
			}
			// The manager needs some time besides the timeouts of its components.
			const slack = 5 * time.Second
			period := deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
			if want := settings.stopTimeout() + slack; period == nil || time.Duration(*period)*time.Second < want {
				t.Errorf("the Deployment leaves less than %s to stop", want)
			}
		})
	}
}

func TestTheDeployedFacadeInsistsOnTLSAndTokensOfItsOwn(t *testing.T) {
	_, settings := deployed(t, "facade")
	if isLoopback(settings.facadeAddr) {
		t.Error("other pods cannot reach the façade")
	}
	if settings.facadeServer.tlsCertFile == "" || settings.facadeAuth.isInsecure {
		t.Error("the façade serves without TLS")
	}
	if settings.facadeAuth.mode != authToken || settings.facadeAuth.audiences != "lock-operator.forrst.dev" {
		t.Errorf("callers are authenticated by %s for %s", settings.facadeAuth.mode, settings.facadeAuth.audiences)
	}
}
