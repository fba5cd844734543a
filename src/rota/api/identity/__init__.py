"""Logins: single sign-on by OpenID Connect, local users, and the sessions that logins open."""
