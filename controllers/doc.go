// Package controllers tidies up after locks that ended without a release.
package controllers
