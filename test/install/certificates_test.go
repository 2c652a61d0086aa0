package install_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	issuingNamespace = "issuing"
	issuingPrefix    = "own-"
	// mountDelay is how old the authorities may be that a client trusts, as in a mounted ConfigMap.
	mountDelay = 2 * time.Second
	// rotationTimeout bounds the 30 s of the product between two looks at the Secrets, on a busy machine.
	rotationTimeout = 2 * time.Minute
)

// rotations returns how often all certificates are renewed: once, unless ROTATIONS in the environment says more.
func rotations() int {
	GinkgoHelper()
	text := os.Getenv("ROTATIONS")
	if text == "" {
		return 1
	}
	count, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred())
	return count
}

var _ = Describe("An installation that issues its own certificates", Ordered, func() {
	var (
		installed      *issuing
		token, scraper string
	)

	BeforeAll(func(ctx context.Context) {
		installed = installIssuing(ctx)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed.callers}}
		Expect(environment.Admin.Client.Create(ctx, namespace)).To(Succeed())
		environment.AllowWorkers(ctx, installed.callers)
		token = tokenOf(ctx, installed.callers, fixture.Worker, ownAudience)
		scraper = tokenOf(ctx, installed.callers, fixture.Worker)
		_, err := admin.Run(ctx, "", "create", "clusterrolebinding", "issuing-scraper", "--clusterrole="+issuingPrefix+"lock-operator-metrics",
			"--serviceaccount="+installed.callers+":"+fixture.Worker)
		Expect(err).NotTo(HaveOccurred())

		By("not being ready before there are certificates, and refusing Locks rather than admitting them unjudged")
		for _, process := range servers {
			installed.launch(ctx, process)
			Eventually(func() string { return installed.logged(process) }).WithTimeout(operatorTimeout).Should(
				ContainSubstring("Waiting for the certificate to serve"), process)
			Consistently(func() int {
				status, _ := installed.ready[process](ctx)
				return status
			}).WithTimeout(2*time.Second).ShouldNot(Equal(http.StatusOK), process)
		}
		Expect(installed.writeLock(ctx, "early")).To(MatchError(ContainSubstring("failed calling webhook")))
		installed.launch(ctx, controllers)
	})

	It("becomes ready when the controllers have filled the Secrets", func(ctx context.Context) {
		for _, process := range append([]string{controllers}, servers...) {
			Eventually(installed.ready[process]).WithContext(ctx).WithTimeout(operatorTimeout).Should(Equal(http.StatusOK), process)
		}
		Eventually(installed.writeLock).WithContext(ctx).WithArguments("first").WithTimeout(operatorTimeout).Should(Succeed())
		for _, replica := range replicas {
			Eventually(installed.call).WithContext(ctx).WithArguments(replica, "first-"+replica, token).WithTimeout(operatorTimeout).Should(Succeed())
		}
		installed.expectConnected(ctx, scraper)
	})

	It("refuses no write and fails no call while certificates are renewed and the authority is extended under load", func(ctx context.Context) {
		load := installed.startLoad(token)
		defer load.stop()
		copied := installed.published(ctx)
		Expect(copied).To(HaveLen(1))
		for rotation := range rotations() {
			waiting := installed.startWaiting(ctx, fmt.Sprintf("kept-%d", rotation), token)
			former := installed.published(ctx)
			installed.ageAuthority(ctx)
			Eventually(installed.published).WithContext(ctx).WithTimeout(rotationTimeout).ShouldNot(Equal(former))
			By("connecting the replicas again, with certificates of before")
			installed.reconnect(ctx, scraper)
			serials := map[string]string{}
			for _, process := range servers {
				serials[process] = installed.served(ctx, process)
			}
			for _, component := range []string{facade, webhook} {
				installed.empty(ctx, "lock-operator-"+component)
			}
			for _, process := range servers {
				Eventually(installed.served).WithContext(ctx).WithArguments(process).WithTimeout(rotationTimeout).ShouldNot(Equal(serials[process]), process)
				connection, err := installed.handshake(ctx, installed.ports[process], componentOf(process), copied)
				Expect(err).NotTo(HaveOccurred(), "a client that has copied the authority before")
				Expect(connection.Close()).To(Succeed())
			}
			By("connecting the replicas again, with the certificates that they serve now")
			for _, replica := range replicas {
				Eventually(installed.servedToPeers).WithContext(ctx).WithArguments(replica).WithTimeout(operatorTimeout).Should(Equal(installed.served(ctx, facade)))
			}
			Eventually(installed.trustedByPeers).WithTimeout(operatorTimeout).Should(Equal(installed.published(ctx)))
			installed.reconnect(ctx, scraper)
			waiting.serve(ctx)
		}
		load.stop()
		Expect(load.failures()).To(BeEmpty())
		for what, count := range load.counts() {
			GinkgoWriter.Printf("%d %s\n", count, what)
			Expect(count).To(BeNumerically(">", 10), what)
		}
	})

	It("serves the metrics of each component with its certificate, and tells when it ends", func(ctx context.Context) {
		for component, names := range map[string][]string{facade: {facade}, webhook: {webhook}, controllers: {controllers, "authority"}} {
			Eventually(func(g Gomega) {
				connection, err := installed.handshake(ctx, installed.metrics[component], component, installed.published(ctx))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(connection.Close()).To(Succeed())
				text, err := installed.scrape(ctx, component, scraper)
				g.Expect(err).NotTo(HaveOccurred())
				for _, name := range names {
					g.Expect(text).To(MatchRegexp(`(?m)^lock_operator_certificate_expiry_timestamp_seconds\{certificate="%s"\} \d`, name))
					g.Expect(text).To(MatchRegexp(`(?m)^lock_operator_certificate_not_before_timestamp_seconds\{certificate="%s"\} \d`, name))
				}
			}).WithTimeout(operatorTimeout).Should(Succeed())
		}
	})

	It("repairs what another party has changed", func(ctx context.Context) {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: issuingPrefix + "lock-operator"}}
		Expect(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		broken := configuration.DeepCopy()
		for index := range broken.Webhooks {
			broken.Webhooks[index].ClientConfig.CABundle = nil
		}
		Expect(environment.Admin.Client.Update(ctx, broken)).To(Succeed())
		Eventually(func(g Gomega) {
			var now admissionregistrationv1.MutatingWebhookConfiguration
			g.Expect(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(configuration), &now)).To(Succeed())
			g.Expect(now.Webhooks).To(Equal(configuration.Webhooks), "nothing else is changed")
		}).WithTimeout(operatorTimeout).Should(Succeed())
		Eventually(installed.writeLock).WithContext(ctx).WithArguments("repaired").WithTimeout(operatorTimeout).Should(Succeed())

		former := installed.served(ctx, facade)
		installed.empty(ctx, "lock-operator-facade")
		Eventually(installed.served).WithContext(ctx).WithArguments(facade).WithTimeout(operatorTimeout).ShouldNot(Equal(former))
		Eventually(installed.call).WithContext(ctx).WithArguments(facade, "repaired", token).WithTimeout(operatorTimeout).Should(Succeed())
	})

	It("has another authority, which is trusted, when the Secret of the authority is emptied", func(ctx context.Context) {
		former := installed.published(ctx)
		installed.empty(ctx, "lock-operator-authority")
		Eventually(func(g Gomega) {
			now := installed.published(ctx)
			g.Expect(now).To(HaveLen(1))
			g.Expect(now[0].CheckSignatureFrom(former[0])).NotTo(Succeed(), "it has another key")
		}).WithTimeout(rotationTimeout).Should(Succeed())
		for _, process := range servers {
			Eventually(func() error {
				connection, err := installed.handshake(ctx, installed.ports[process], componentOf(process), installed.published(ctx))
				if err != nil {
					return err
				}
				return connection.Close()
			}).WithTimeout(operatorTimeout).Should(Succeed(), process)
		}
		Eventually(installed.writeLock).WithContext(ctx).WithArguments("another").WithTimeout(operatorTimeout).Should(Succeed())
		Eventually(installed.call).WithContext(ctx).WithArguments(facade, "another", token).WithTimeout(operatorTimeout).Should(Succeed())
		Eventually(installed.trustedByPeers).WithTimeout(operatorTimeout).Should(Equal(installed.published(ctx)))
		installed.reconnect(ctx, scraper)
	})

	It("leaves its data alone when the manifests are applied again", func(ctx context.Context) {
		contents := func() string {
			GinkgoHelper()
			text, err := admin.Run(ctx, "", "get", "secrets,configmaps", "-n", issuingNamespace, "-l=app.kubernetes.io/name=lock-operator", "-o=jsonpath={.items[*].data}")
			Expect(err).NotTo(HaveOccurred())
			return text
		}
		former := contents()
		for _, flags := range [][]string{{"--server-side", "--force-conflicts"}, nil} {
			for _, manifest := range installed.manifests {
				if bytes.Contains(manifest, []byte("kind: Secret\n")) || bytes.Contains(manifest, []byte("kind: ConfigMap\n")) {
					_, err := admin.Run(ctx, string(manifest), append([]string{"apply", "-f", "-"}, flags...)...)
					Expect(err).NotTo(HaveOccurred())
				}
			}
			Expect(contents()).To(Equal(former))
		}
	})

	It("lets every pod read the authority, and none its key", func(ctx context.Context) {
		pod := environment.Identity("system:serviceaccount:"+installed.callers+":default", "system:serviceaccounts", "system:authenticated").Kubectl
		Expect(pod.Run(ctx, "", "get", "configmap", issuingPrefix+"lock-operator-authority", "-n", issuingNamespace, "-o=name")).NotTo(BeEmpty())
		for _, component := range []string{facade, webhook} {
			taken := installed.identity(component).Kubectl
			_, err := taken.Run(ctx, "", "get", "secret", issuingPrefix+"lock-operator-authority", "-n", issuingNamespace)
			Expect(err).To(MatchError(ContainSubstring("forbidden")))
		}
		_, err := pod.Run(ctx, "", "get", "secret", issuingPrefix+"lock-operator-authority", "-n", issuingNamespace)
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})
})

// issuing is an installation whose processes get their certificates as pods do: from the Secrets, by mounted files.
type issuing struct {
	installation

	callers string
	// volumes are the folders of the components' Secrets, and peersVolume that of what the replicas show each other.
	volumes     map[string]string
	peersVolume string
	// ports are where the processes listen, and links the ways to the replicas of the façade for each other.
	ports map[string]string
	links map[string]*link
	ready map[string]func(context.Context) (int, error)

	mu           sync.Mutex
	trusted      []*x509.Certificate
	trustedSince time.Time
}

// installIssuing applies the manifests, with Services that lead to this machine.
func installIssuing(ctx context.Context) *issuing {
	GinkgoHelper()
	i := &issuing{
		installation: installation{
			namespace: issuingNamespace, prefix: issuingPrefix, processes: map[string]*gexec.Session{}, metrics: map[string]string{},
			manifests: overlayOf(ctx, issuingNamespace, issuingPrefix, "components: [CONFIG/guards]\n"),
		},
		callers: "issuing-callers",
		volumes: map[string]string{}, peersVolume: GinkgoT().TempDir(),
		ports: map[string]string{}, links: map[string]*link{}, ready: map[string]func(context.Context) (int, error){},
	}
	for _, component := range components {
		i.volumes[component] = GinkgoT().TempDir()
	}
	for _, process := range append([]string{controllers}, servers...) {
		i.ports[process] = fixture.FreeAddress(ctx)
		i.metrics[process] = fixture.FreeAddress(ctx)
	}
	i.linkReplicas(ctx)
	_, port, err := net.SplitHostPort(i.ports[webhook])
	Expect(err).NotTo(HaveOccurred())
	for _, manifest := range i.manifests {
		text := string(manifest)
		switch {
		case strings.Contains(text, "kind: Deployment\n"):
			continue
		case strings.Contains(text, "kind: Service\n") && strings.Contains(text, "name: own-lock-operator-webhook\n"):
			text = fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: own-lock-operator-webhook, namespace: %s}\nspec: {type: ExternalName, externalName: localhost}\n", issuingNamespace)
		case strings.Contains(text, "WebhookConfiguration\n"):
			text = strings.ReplaceAll(text, "    service:\n", "    service:\n      port: "+port+"\n")
		}
		_, err := admin.Run(ctx, text, "apply", "--server-side", "--force-conflicts", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	}
	DeferCleanup(func(ctx context.Context) {
		_, err := admin.Run(ctx, "", "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
		Expect(err).NotTo(HaveOccurred())
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var kubelet sync.WaitGroup
	kubelet.Go(func() { i.mount(ctx) })
	DeferCleanup(func() { stop(); kubelet.Wait() })
	return i
}

// launch starts a process by the arguments of the Deployment of its component, with the files of its volumes.
func (i *issuing) launch(ctx context.Context, process string) {
	GinkgoHelper()
	component := componentOf(process)
	arguments := append(argumentsOf(i.deployment(component)), "--metrics-bind-address="+i.metrics[process], "--metrics-cert-dir="+i.volumes[component])
	switch component {
	case facade:
		arguments = append(arguments, "--facade-bind-address="+i.ports[process], "--facade-shutdown-delay=0s", "--facade-max-block=10m",
			// The load is one caller's.
			"--facade-max-rate-per-caller=0",
			"--facade-tls-cert-file="+filepath.Join(i.volumes[facade], "tls.crt"), "--facade-tls-key-file="+filepath.Join(i.volumes[facade], "tls.key"))
		arguments = append(arguments, i.peersFlags(process)...)
	case webhook:
		host, port, err := net.SplitHostPort(i.ports[webhook])
		Expect(err).NotTo(HaveOccurred())
		number, err := strconv.Atoi(port)
		Expect(err).NotTo(HaveOccurred())
		arguments = append(arguments, environment.WebhookFlags(host, number, i.volumes[webhook])...)
	}
	i.processes[process], i.ready[process] = fixture.LaunchOperator(ctx, i.identity(component).Kubectl, arguments...)
}

// mount writes the Secrets of the components, and what the replicas of the façade show each other, into their volumes as
// a kubelet does, until ctx ends.
func (i *issuing) mount(ctx context.Context) {
	const period = 200 * time.Millisecond
	versions := map[string]string{}
	var peersMounted time.Time
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for component, folder := range i.volumes {
			var secret corev1.Secret
			key := client.ObjectKey{Namespace: i.namespace, Name: i.prefix + "lock-operator-" + component}
			if err := environment.Admin.Client.Get(ctx, key, &secret); err != nil || secret.ResourceVersion == versions[component] {
				continue
			}
			if err := writeVolume(folder, secret.ResourceVersion, secret.Data); err != nil {
				GinkgoWriter.Println("write a volume:", err)
				continue
			}
			versions[component] = secret.ResourceVersion
		}
		if time.Since(peersMounted) > mountDelay {
			peersMounted = time.Now()
			i.mountPeers(ctx, versions)
		}
	}
}

// writeVolume exchanges all files of a volume at once: they are links to those of a folder, which is one, too.
func writeVolume(folder, version string, data map[string][]byte) error {
	contents := filepath.Join(folder, ".."+version)
	if err := os.Mkdir(contents, 0o700); err != nil {
		return err
	}
	for name, content := range data {
		if err := os.WriteFile(filepath.Join(contents, name), content, 0o600); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	former, _ := os.Readlink(filepath.Join(folder, "..data"))
	if err := os.Symlink(".."+version, filepath.Join(folder, "..data_tmp")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")); err != nil || former == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(folder, former))
}

// published are the authorities that clients are told to trust.
func (i *issuing) published(ctx context.Context) []*x509.Certificate {
	var publication corev1.ConfigMap
	if err := environment.Admin.Client.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: i.prefix + "lock-operator-authority"}, &publication); err != nil {
		return nil
	}
	authorities, _ := cert.ParseCertsPEM([]byte(publication.Data["ca.crt"])) // None before there is one.
	return authorities
}

// empty asks for another authority or certificate.
func (i *issuing) empty(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := admin.Run(ctx, "", "patch", "secret", i.prefix+name, "-n", i.namespace, "--type=merge", `-p={"data":{"tls.crt":"","tls.key":""}}`)
	Expect(err).NotTo(HaveOccurred())
}

// ageAuthority leaves an eleventh of its life to the authority, which makes it due.
func (i *issuing) ageAuthority(ctx context.Context) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: i.prefix + "lock-operator-authority"}}
	Expect(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	authority, err := certificates.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	Expect(err).NotTo(HaveOccurred())
	aged, err := authority.Extend(nil, time.Now().Add(-9*time.Hour), 10*time.Hour)
	Expect(err).NotTo(HaveOccurred())
	secret.Data[corev1.TLSCertKey] = aged.CertificatePEM
	Expect(environment.Admin.Client.Update(ctx, secret)).To(Succeed())
}

// mounted are the authorities that were published a while ago.
func (i *issuing) mounted(ctx context.Context) []*x509.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.trustedSince) > mountDelay {
		i.trusted, i.trustedSince = i.published(ctx), time.Now()
	}
	return i.trusted
}

// handshake connects to an address of a component, trusting the authorities, and no other name than that of
// its Service.
func (i *issuing) handshake(ctx context.Context, address, component string, trusted []*x509.Certificate, protocols ...string) (*tls.Conn, error) {
	roots := x509.NewCertPool()
	for _, authority := range trusted {
		roots.AddCert(authority)
	}
	dialer := &tls.Dialer{Config: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: protocols, ServerName: i.prefix + "lock-operator-" + component + "." + i.namespace + ".svc",
	}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secured, _ := connection.(*tls.Conn)
	return secured, nil
}

// served is the serial number of the certificate that a process serves.
func (i *issuing) served(ctx context.Context, process string) string {
	GinkgoHelper()
	connection, err := i.handshake(ctx, i.ports[process], componentOf(process), i.published(ctx))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(connection.Close()).To(Succeed()) }()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

// writeLock takes and gives back a Lock through the webhook.
func (i *issuing) writeLock(ctx context.Context, name string) error {
	lock := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.LockSpec{Key: name}}
	if err := environment.Admin.Client.Create(ctx, lock); err != nil {
		return err
	}
	return environment.Admin.Client.Delete(ctx, lock)
}

// call takes a lock at a replica of the façade.
func (i *issuing) call(ctx context.Context, replica, key, token string) error {
	_, err := i.send(ctx, http.MethodPost, replica, key, token, "", `{"ttl_seconds":60}`)
	return err
}

// passOn waits for a lock at a replica of the façade, and gives it back.
func (i *issuing) passOn(ctx context.Context, replica, key, token string) error {
	acquired, err := i.send(ctx, http.MethodPost, replica, key, token, "", `{"ttl_seconds":60,"wait_seconds":300}`)
	if err != nil {
		return err
	}
	_, err = i.send(ctx, http.MethodDelete, replica, key, token, acquired, "")
	return err
}

// waiters is how many callers wait for a lock, as a replica tells.
func (i *issuing) waiters(ctx context.Context, replica, key, token string) (int, error) {
	text, err := i.request(ctx, http.MethodGet, replica, key+"/waiters", token, "", "")
	if err != nil {
		return 0, err
	}
	var line wire.Waiters
	err = json.Unmarshal(text, &line)
	return len(line.Waiters), err
}

// send calls a replica of the façade about a lock. It returns the token of a lock that is acquired.
func (i *issuing) send(ctx context.Context, method, replica, key, token, lockToken, body string) (acquired string, err error) {
	text, err := i.request(ctx, method, replica, key, token, lockToken, body)
	if err != nil || len(text) == 0 {
		return "", err
	}
	var answer wire.Lock
	err = json.Unmarshal(text, &answer)
	return answer.LockToken, err
}

// request calls a replica of the façade, on a connection of its own that trusts what is mounted.
func (i *issuing) request(ctx context.Context, method, replica, path, token, lockToken, body string) (answer []byte, err error) {
	caller := &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return i.handshake(ctx, address, facade, i.mounted(ctx))
		},
		DisableKeepAlives: true,
	}}
	address := "https://" + i.ports[replica] + "/v1/namespaces/" + i.callers + "/locks/" + path
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	if lockToken != "" {
		request.Header.Set("X-Lock-Token", lockToken)
	}
	response, err := caller.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: status %d: %s", method, response.StatusCode, answer)
	}
	return answer, err
}
