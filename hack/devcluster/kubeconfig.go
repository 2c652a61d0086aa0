package main

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName shows in the prompts of users, so it must tell this cluster from others.
const contextName = "lock-operator-dev"

// writeKubeconfig writes a kubeconfig that needs no other file and is readable only for this
// user.
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
