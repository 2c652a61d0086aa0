// Package sender tells admission who sent a review, as far as the server of the webhook knows. A
// review itself proves nothing: any program that reaches the port can write one in the name of any
// user.
package sender
