// Package refusal tells the writes of locks that the API server refuses from those that lost a
// race, and takes owner tokens out of what it says.
package refusal
