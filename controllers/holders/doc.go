// Package holders releases locks whose spec.holderRef names an object that has ended.
package holders
