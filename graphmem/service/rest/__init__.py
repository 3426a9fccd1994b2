"""The paths of the service, a module for each subject; `dependencies` has what they share."""
