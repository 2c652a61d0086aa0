// Package certificates has the rules of the certificates that the installation issues itself: when an
// authority or a certificate must be replaced, and what the certificates say. The rules are pure functions of
// what there is and of the time; controllers/issuer reads and writes the objects.
//
// An authority is extended with its key before it ends. So whoever trusts an earlier certificate of it, or
// serves one that it has issued earlier, notices nothing.
package certificates
