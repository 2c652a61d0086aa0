// Package installation looks at an installation of the operator as a whole, from the outside: whether it
// serves, and what would be left behind without it. Helm's hooks run it.
package installation
