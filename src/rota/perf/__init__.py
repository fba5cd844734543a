"""How fast a job runs where: by device type, number of devices, spread and neighbours."""
