package main

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is what people see in their prompt: no other cluster must be
// mistaken for this one.
const contextName = "lock-operator-dev"

// writeKubeconfig writes a kubeconfig that needs no other file. Only this user
// can read it.
func writeKubeconfig(path, server string, authority []byte, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{
		Server:                   server,
		CertificateAuthorityData: authority,
	}
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[contextName] = &clientcmdapi.Context{
		Cluster:   contextName,
		AuthInfo:  contextName,
		Namespace: "default",
	}
	config.CurrentContext = contextName
	// WriteToFile creates the file with mode 0600.
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
