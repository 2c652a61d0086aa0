// Package certificates has the rules of the certificates that the installation issues itself: when an
// authority or a certificate must be replaced, which authorities clients must trust meanwhile, and what the
// certificates say. The rules are pure functions of what there is and of the time; controllers/issuer reads
// and writes the objects.
//
// One authority signs. When it is replaced, the key of the former one is gone at once, but clients go on
// trusting it, and its certificates are served, until clients have had time to learn of the new one. Then all
// certificates are issued anew, and the former authority is dropped when no process serves one of its own.
package certificates
