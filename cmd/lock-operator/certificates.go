package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/controllers/issuer"
	"forrst.dev/lock-operator/controllers/leadership"
)

// certificateOptions are the flags of the certificates that the controllers issue.
type certificateOptions struct {
	authority string
	leafs     certificateList
	policy    certificates.Policy
}

func (o *certificateOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.authority, "certificate-authority", "", "The name of the Secret with the authority that signs the certificates of --issue-certificate, and of the ConfigMap that publishes it, in the namespace of the operator. Empty to issue none: certificates come from elsewhere.")
	flags.Var(&o.leafs, "issue-certificate", "The `name` of a Secret to keep a certificate in for the Service of the same name, and after commas further DNS names for it. Repeat the flag for more certificates.")
	usual := certificates.DefaultPolicy()
	flags.DurationVar(&o.policy.Lifetime, "certificate-lifetime", usual.Lifetime, "How long a certificate is valid, at least 1h, but no longer than its authority. It is issued anew when a third of its life is left.")
	flags.DurationVar(&o.policy.AuthorityLifetime, "authority-lifetime", usual.AuthorityLifetime, "How long the authority is valid, at least 1h. It is extended, with the same key, when a third of its life is left.")
}

func (o *certificateOptions) validate() error {
	if o.authority == "" {
		if len(o.leafs) > 0 {
			return errors.New("--issue-certificate: needs --certificate-authority")
		}
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(o.authority); len(problems) > 0 {
		return fmt.Errorf("--certificate-authority: %q: %s", o.authority, strings.Join(problems, ", "))
	}
	if len(o.leafs) == 0 {
		return errors.New("--certificate-authority: needs --issue-certificate")
	}
	for index, leaf := range o.leafs {
		isTaken := func(other issuer.Leaf) bool { return other.Name == leaf.Name }
		if leaf.Name == o.authority || slices.ContainsFunc(o.leafs[:index], isTaken) {
			return fmt.Errorf("--issue-certificate: the Secret %s is to hold two certificates", leaf.Name)
		}
	}
	if err := o.policy.Validate(); err != nil {
		return fmt.Errorf("--certificate-lifetime, --authority-lifetime: %w", err)
	}
	return nil
}

// certificateList is the value of a flag that is repeated.
type certificateList []issuer.Leaf

// String implements [flag.Value].
func (l *certificateList) String() string {
	var texts []string
	for _, leaf := range *l {
		texts = append(texts, strings.Join(append([]string{leaf.Name}, leaf.DNSNames...), ","))
	}
	return strings.Join(texts, " ")
}

// Set implements [flag.Value].
func (l *certificateList) Set(text string) error {
	names := strings.Split(text, ",")
	if problems := validation.IsDNS1035Label(names[0]); len(problems) > 0 {
		return fmt.Errorf("%q is no name of a Service: %s", names[0], strings.Join(problems, ", "))
	}
	for _, name := range names[1:] {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("%q is no DNS name: %s", name, strings.Join(problems, ", "))
		}
	}
	*l = append(*l, issuer.Leaf{Name: names[0], DNSNames: names[1:]})
	return nil
}

// addIssuer adds the controller that issues certificates, if it is to.
func addIssuer(manager ctrl.Manager, settings options, now clock.PassiveClock, election *leadership.Election) error {
	if settings.certificates.authority == "" {
		return nil
	}
	if settings.leaderElectionNamespace == "" {
		return errors.New("--certificate-authority: needs --leader-election-namespace, the namespace of its Secret")
	}
	reconciler := issuer.New(issuer.Options{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Namespace:  settings.leaderElectionNamespace,
		Authority:  settings.certificates.authority,
		Leafs:      settings.certificates.leafs,
		Policy:     settings.certificates.policy,
		Clock:      now,
		Leadership: election,
	})
	if err := metrics.Registry.Register(reconciler.Metrics()); err != nil {
		return fmt.Errorf("register the metrics of the authority: %w", err)
	}
	return reconciler.SetupWithManager(manager)
}

// newMetricsCertificate returns the files with the certificate of the metrics' port, or nil if there are none.
func newMetricsCertificate(manager ctrl.Manager, settings options) (*certfile.Files, error) {
	if settings.metricsCertDir == "" {
		return nil, nil // The process signs a certificate itself.
	}
	files := certfile.New(certfile.Options{
		Certificate: filepath.Join(settings.metricsCertDir, "tls.crt"),
		Key:         filepath.Join(settings.metricsCertDir, "tls.key"),
		Logger:      manager.GetLogger().WithName("metrics"),
	})
	if err := manager.Add(files); err != nil {
		return nil, err
	}
	if settings.components != controllerComponent {
		return files, nil // It is that of façade or webhook, which tell of it.
	}
	return files, metrics.Registry.Register(certificates.NewValidityMetrics("controllers", files.Leaf))
}
