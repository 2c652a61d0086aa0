package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func cached(namespace, name string) *v1alpha1.Lock {
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}}
}

func newTestCache() *lockCache {
	return newLockCache(func(types.NamespacedName, lock.Change) {}, func(types.NamespacedName) {})
}
