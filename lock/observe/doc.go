// Package observe says what an engine and its callers tell of their work besides audit records. Package
// enginemetrics counts it.
package observe
