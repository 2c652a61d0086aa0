// Package usage counts the objects that each namespace has, and bounds them without a request.
package usage
