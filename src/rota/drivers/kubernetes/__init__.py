"""Pods of a Kubernetes cluster: watch, translate, bind, evict."""
