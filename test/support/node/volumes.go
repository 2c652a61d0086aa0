package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// files are the contents of a volume by their paths.
type files map[string][]byte

// writeVolumes writes what has changed of the volumes of the pod, each into a folder of its name. It
// fails if a Secret or ConfigMap is missing that is not optional.
func (p *pod) writeVolumes(ctx context.Context) error {
	for _, volume := range p.object.Spec.Volumes {
		content := files{}
		if err := p.read(ctx, volume, content); err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		folder := filepath.Join(p.folder, volume.Name)
		// The folder above is root's alone; the container has another user.
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for path, data := range content {
			if err := replace(filepath.Join(folder, path), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// read adds what is in the volume.
func (p *pod) read(ctx context.Context, volume corev1.Volume, into files) error {
	switch {
	case volume.Secret != nil:
		return p.readSecret(ctx, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional, into)
	case volume.ConfigMap != nil:
		return p.readConfigMap(ctx, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional, into)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if err := p.project(ctx, source, into); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("this node knows no such volume: %v", volume)
	}
}

func (p *pod) project(ctx context.Context, source corev1.VolumeProjection, into files) error {
	switch {
	case source.Secret != nil:
		return p.readSecret(ctx, source.Secret.Name, source.Secret.Items, source.Secret.Optional, into)
	case source.ConfigMap != nil:
		return p.readConfigMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional, into)
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			value, err := p.field(item.FieldRef)
			if err != nil {
				return err
			}
			into[item.Path] = []byte(value)
		}
		return nil
	case source.ServiceAccountToken != nil:
		return p.issueToken(ctx, source.ServiceAccountToken, into)
	default:
		return fmt.Errorf("this node knows no such projection: %v", source)
	}
}

// issueToken asks for a token once: no pod here outlives one.
func (p *pod) issueToken(ctx context.Context, source *corev1.ServiceAccountTokenProjection, into files) error {
	if token, ok := p.tokens[source.Path+source.Audience]; ok {
		into[source.Path] = token
		return nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.object.Name, UID: p.object.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	issued, err := p.node.options.Client.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx, p.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.tokens[source.Path+source.Audience] = []byte(issued.Status.Token)
	into[source.Path] = p.tokens[source.Path+source.Audience]
	return nil
}

func (p *pod) readSecret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, into files) error {
	secret, err := p.node.options.Client.CoreV1().Secrets(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unlessOptional(err, optional)
	}
	return choose(secret.Data, items, optional, into)
}

func (p *pod) readConfigMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, into files) error {
	configMap, err := p.node.options.Client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unlessOptional(err, optional)
	}
	data := files{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return choose(data, items, optional, into)
}

func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// choose adds all keys, or those that are named, under their paths.
func choose(data map[string][]byte, items []corev1.KeyToPath, optional *bool, into files) error {
	if len(items) == 0 {
		maps.Copy(into, data)
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && (optional == nil || !*optional) {
			return fmt.Errorf("there is no key %s", item.Key)
		}
		if ok {
			into[item.Path] = value
		}
	}
	return nil
}

// replace lets readers find the old or the new content.
func replace(path string, data []byte) error {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, data) {
		return nil
	}
	draft := path + ".draft"
	if err := os.WriteFile(draft, data, 0o644); err != nil {
		return err
	}
	return os.Rename(draft, path)
}
