package installation_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bringPrometheus creates the service account of a Prometheus, until the test ends.
func (c *cluster) bringPrometheus(t *testing.T) {
	t.Helper()
	c.kubectlRun(t, "", "create", "namespace", "monitoring")
	c.kubectlRun(t, "", "create", "serviceaccount", "prometheus", "--namespace=monitoring")
	t.Cleanup(func() { c.kubectlRun(t, "", "delete", "namespace", "monitoring", "--timeout", patience.String()) })
}

// followReferences does what the controllers of optional objects do with what these name: it scrapes what the
// ServiceMonitors select, and calls what the Ingress and the HTTPRoute lead to.
func (c *cluster) followReferences(t *testing.T) {
	t.Helper()
	monitors := c.list(t, schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitorList"})
	if len(monitors) != 3 {
		t.Errorf("there are %d ServiceMonitors", len(monitors))
	}
	for _, monitor := range monitors {
		c.scrape(t, monitor)
	}
	c.callRoutes(t)
}

func (c *cluster) list(t *testing.T, kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	check(t, c.objects.List(t.Context(), list, client.InNamespace(namespace)))
	return list.Items
}

// scrape reads the metrics of each pod that the ServiceMonitor selects, as the Prometheus of the values may.
func (c *cluster) scrape(t *testing.T, monitor unstructured.Unstructured) {
	t.Helper()
	wanted, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	check(t, err)
	endpoint := first(t, monitor.Object, "spec", "endpoints")
	services, err := c.client.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.SelectorFromSet(wanted).String()})
	check(t, err)
	if len(services.Items) != 1 {
		t.Fatalf("%s selects %d Services", monitor.GetName(), len(services.Items))
	}
	authority := c.authority(t, "ConfigMap", text(endpoint, "tlsConfig", "ca", "configMap", "name"))
	name := text(endpoint, "tlsConfig", "serverName")
	token := c.token(t, "monitoring", "prometheus")
	addresses := c.endpoints(t, services.Items[0].Name, text(endpoint, "port"))
	if len(addresses) != 2 {
		t.Errorf("%s leads to %q", monitor.GetName(), addresses)
	}
	for _, address := range addresses {
		status, body := get(t, text(endpoint, "scheme")+"://"+address+"/metrics", name, authority, token)
		if status != http.StatusOK || !strings.Contains(body, "\nlock_operator_") {
			t.Errorf("%s at %s answers %d: %s", monitor.GetName(), address, status, tail(body, 200))
		}
	}
}

// callRoutes lists locks and gets the page through what the Ingress and the HTTPRoute lead to, verified as the
// BackendTLSPolicy says.
func (c *cluster) callRoutes(t *testing.T) {
	t.Helper()
	ingress, err := c.client.NetworkingV1().Ingresses(namespace).Get(t.Context(), "lock-operator-facade", metav1.GetOptions{})
	check(t, err)
	var urls []string
	for _, path := range ingress.Spec.Rules[0].HTTP.Paths {
		urls = append(urls, "https://"+c.serviceAddress(t, path.Backend.Service.Name, path.Backend.Service.Port.Name)+path.Path)
	}

	route := first(t, c.list(t, schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRouteList"})[0].Object, "spec", "rules")
	backend := first(t, route, "backendRefs")
	number, _, err := unstructured.NestedInt64(backend, "port")
	check(t, err)
	byRoute := c.serviceAddress(t, text(backend, "name"), strconv.FormatInt(number, 10))
	matches, _, err := unstructured.NestedSlice(route, "matches")
	check(t, err)
	for _, match := range matches {
		path, _ := match.(map[string]any)
		urls = append(urls, "https://"+byRoute+text(path, "path", "value"))
	}

	policy := c.list(t, schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "BackendTLSPolicyList"})[0].Object
	if target := text(first(t, policy, "spec", "targetRefs"), "name"); target != text(backend, "name") {
		t.Errorf("the BackendTLSPolicy is about %q", target)
	}
	reference := first(t, policy, "spec", "validation", "caCertificateRefs")
	authority := c.authority(t, text(reference, "kind"), text(reference, "name"))

	c.kubectlRun(t, "", "create", "serviceaccount", "caller")
	_, err = c.client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "caller"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "caller", Namespace: "default"}},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { c.kubectlRun(t, "", "delete", "serviceaccount/caller", "rolebinding/caller") })
	token := c.token(t, "default", "caller", "lock-operator.forrst.dev")
	// Each leads to the REST door and the page.
	if got := len(urls); got != 4 {
		t.Errorf("the Ingress and the HTTPRoute lead to %v", urls)
	}
	for _, url := range urls {
		want := "<title>Locks</title>"
		if strings.HasSuffix(url, "/v1/") {
			url, want = url+"namespaces/default/locks", `"locks":`
		}
		status, body := get(t, url, text(policy, "spec", "validation", "hostname"), authority, token)
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d: %s", url, status, tail(body, 200))
		}
	}
}

// serviceAddress returns where the port of a Service is, which a name or a number says.
func (c *cluster) serviceAddress(t *testing.T, name, port string) string {
	t.Helper()
	service, err := c.client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	for _, each := range service.Spec.Ports {
		if number := strconv.Itoa(int(each.Port)); each.Name == port || number == port {
			return net.JoinHostPort(service.Spec.ClusterIP, number)
		}
	}
	t.Fatalf("the Service %s has no port %s", name, port)
	return ""
}

// endpoints returns the addresses of the pods behind a port of a Service.
func (c *cluster) endpoints(t *testing.T, service, port string) []string {
	t.Helper()
	slices, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	check(t, err)
	var found []string
	for _, slice := range slices.Items {
		for _, each := range slice.Ports {
			if *each.Name != port {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				found = append(found, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*each.Port))))
			}
		}
	}
	return found
}

// authority returns the certificates that a ConfigMap or a Secret of the installation has.
func (c *cluster) authority(t *testing.T, kind, name string) *x509.CertPool {
	t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: name}
	var content []byte
	switch kind {
	case "ConfigMap":
		found := &corev1.ConfigMap{}
		check(t, c.objects.Get(t.Context(), key, found))
		content = []byte(found.Data["ca.crt"])
	case "Secret":
		found := &corev1.Secret{}
		check(t, c.objects.Get(t.Context(), key, found))
		content = found.Data["ca.crt"]
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		t.Fatalf("the %s %q has no authority", kind, name)
	}
	return pool
}

// get calls a server that has to have a certificate for the name by the authority.
func get(t *testing.T, url, name string, authority *x509.CertPool, token string) (int, string) {
	t.Helper()
	transport := trusting(authority, name)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	check(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(body)
}

// trusting connects to servers that have a certificate for the name by the authority.
func trusting(authority *x509.CertPool, name string) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, ServerName: name, MinVersion: tls.VersionTLS12}}
}

// first returns the first of a list of objects.
func first(t *testing.T, object map[string]any, path ...string) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(object, path...)
	check(t, err)
	if len(list) == 0 {
		t.Fatalf("there is nothing in %v", path)
	}
	found, _ := list[0].(map[string]any)
	return found
}
