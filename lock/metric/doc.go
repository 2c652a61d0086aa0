// Package metric declares the metrics of lock-operator: their names, types, labels and meaning. Whatever
// reports a metric makes it from its declaration, and the table of docs/metrics.md is made from all of them.
//
// Label values never come from requests. No label is a key or a holder, and one that is a namespace belongs
// to a metric that is made anew for each scrape: its series ends with the last lock, waiter or Job there.
package metric
