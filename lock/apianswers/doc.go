// Package apianswers tells the answers of API servers from those of proxies on the way to them.
package apianswers
