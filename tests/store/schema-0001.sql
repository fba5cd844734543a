BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE answers (
	"key" VARCHAR(256) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	answer TEXT NOT NULL, 
	created_s FLOAT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "answers" VALUES('local:426281d1cfb440bf907e10dbb77f3874','4792ce3f0fef0dbdc98e64145b7599c85b646ee2ba03a9bedb21146f49a9d1f0','{"ids": ["1"]}',1.79474390069373416906e+09);
INSERT INTO "answers" VALUES('local:bce5e3b8088548d388c50e06350534c3','ef23f6e171c72d1a9428fede7b9a981c968515bef7417206e9a69bc4605f2225','{"ids": ["2"]}',1.79474390133363056187e+09);
INSERT INTO "answers" VALUES('local:a56cba40020a42148480150fb0f5c13e','554dfdb6e19cde499c77189b288d24ae472f7be5422c871446968b9dac77505c','{"ids": ["3"]}',1.79474390219668030735e+09);
INSERT INTO "answers" VALUES('local:06981c8ece9047f4aac5fa6a6b6c06f8','0271943fc090e36a977b565319a28877fef767b8c855bf088450fdbfbfbc99fa','{"ids": ["4"]}',1.7947439027945642471e+09);
CREATE TABLE audit (
	n INTEGER NOT NULL, 
	at_s FLOAT NOT NULL, 
	who VARCHAR(128) NOT NULL, 
	what VARCHAR(64) NOT NULL, 
	thing VARCHAR(256) NOT NULL, 
	detail TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (n)
);
INSERT INTO "audit" VALUES(1,1.79474390069372391701e+09,'local','submit','1','done');
INSERT INTO "audit" VALUES(2,1.79474390133361911777e+09,'local','submit','2','broken');
INSERT INTO "audit" VALUES(3,1.79474390219667029374e+09,'local','submit','3','kept');
INSERT INTO "audit" VALUES(4,1.79474390279455471046e+09,'local','submit','4','waits');
INSERT INTO "audit" VALUES(5,1.79474390329379057881e+09,'local','token-create','b6bf4504','ada member');
INSERT INTO "audit" VALUES(6,1.7947439037589998245e+09,'local','drain','n1','');
INSERT INTO "audit" VALUES(7,1.79474390417823767658e+09,'local','undrain','n1','');
CREATE TABLE jobs (
	id VARCHAR(64) NOT NULL, 
	seq BIGINT NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	tenant VARCHAR(128) NOT NULL, 
	owner VARCHAR(128) DEFAULT '' NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	submitted_s FLOAT NOT NULL, 
	started_s FLOAT, 
	ended_s FLOAT, 
	job TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	live TEXT NOT NULL, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	exit_code INTEGER, 
	message TEXT DEFAULT '' NOT NULL, 
	version INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (seq)
);
INSERT INTO "jobs" VALUES('1',0,'done','default','local','succeeded',1.79474390069375562672e+09,1.79474390078931283955e+09,1.79474390082162451741e+09,'{"id":"1","roles":[{"device_milli":0}],"name":"done","user":"local"}','{"run":["echo","done"],"name":"done","workdir":"/tmp"}','{"state":"succeeded","submitted_s":1794743900.6937556,"since_s":1794743900.8216245,"work_from_s":1794743900.8216245,"ran_s":0.03231167793273926,"first_start_s":1794743900.7893128,"ended_s":1794743900.8216245,"lost_work":0.03244972229003906}',1,0,0,'',2);
INSERT INTO "jobs" VALUES('2',1,'broken','default','local','failed',1.79474390133364605903e+09,1.79474390147192978863e+09,1.79474390152975893019e+09,'{"id":"2","roles":[{"device_milli":0}],"name":"broken","user":"local"}','{"run":["false"],"name":"broken","workdir":"/tmp"}','{"state":"failed","seq":1,"submitted_s":1794743901.333646,"since_s":1794743901.529759,"work_from_s":1794743901.529759,"ran_s":0.05782914161682129,"first_start_s":1794743901.4719298,"ended_s":1794743901.529759,"lost_work":0.05790591239929199}',1,0,1,'exit code 1',2);
INSERT INTO "jobs" VALUES('3',2,'kept','default','local','held',1.79474390219669818879e+09,NULL,NULL,'{"id":"3","name":"kept","user":"local","roles":[{}]}','{"run":["echo","kept"],"name":"kept","resources":{"gpus":"1"},"workdir":"/tmp"}','{"state":"held","seq":2,"submitted_s":1794743902.1966982,"since_s":1794743902.1966982,"work_from_s":1794743902.1966982}',0,0,NULL,'',0);
INSERT INTO "jobs" VALUES('4',3,'waits','default','local','held',1.79474390279458093644e+09,NULL,NULL,'{"id":"4","roles":[{"device_milli":2000}],"name":"waits","user":"local"}','{"run":["true"],"name":"waits","resources":{"gpus":"2"},"env":{"K":{"secret":"hidden"}},"workdir":"/tmp"}','{"state":"held","seq":3,"submitted_s":1794743902.794581,"since_s":1794743902.794581,"work_from_s":1794743902.794581}',0,0,NULL,'',0);
CREATE TABLE nodes (
	id VARCHAR(256) NOT NULL, 
	drained INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "nodes" VALUES('n1',0);
CREATE TABLE segments (
	first_step BIGINT NOT NULL, 
	header TEXT NOT NULL, 
	PRIMARY KEY (first_step)
);
INSERT INTO "segments" VALUES(0,'{"rota_journal": 1, "policy": "priority", "placement": "consolidate", "tenancy": "none", "profiles": null, "about": "a live manager", "cluster": [{"id": "n1", "devices": 2}], "snapshot": {"now_s": 1794743900.01973, "seq": 0, "jobs": [], "drained": [], "down": []}}');
CREATE TABLE steps (
	n BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (n)
);
INSERT INTO "steps" VALUES(0,'{"n":0,"t":1794743900.0466766,"in":[{"event":"timer"}]}');
INSERT INTO "steps" VALUES(1,'{"n":1,"t":1794743900.6937556,"in":[{"event":"arrived","job":{"id":"1","roles":[{"device_milli":0}],"name":"done","user":"local"}}],"out":[{"order":"start","job_id":"1","on":[["n1",[],1,0,1000]]}]}');
INSERT INTO "steps" VALUES(2,'{"n":2,"t":1794743900.7893128,"in":[{"event":"started","job_id":"1","rate":1.0,"work_from_s":1794743900.7891748}]}');
INSERT INTO "steps" VALUES(3,'{"n":3,"t":1794743900.8216245,"in":[{"event":"ended","job_id":"1","end":"succeeded","work":0.0}]}');
INSERT INTO "steps" VALUES(4,'{"n":4,"t":1794743901.333646,"in":[{"event":"arrived","job":{"id":"2","roles":[{"device_milli":0}],"name":"broken","user":"local"}}],"out":[{"order":"start","job_id":"2","on":[["n1",[],1,0,1000]]}]}');
INSERT INTO "steps" VALUES(5,'{"n":5,"t":1794743901.4719298,"in":[{"event":"started","job_id":"2","rate":1.0,"work_from_s":1794743901.471853}]}');
INSERT INTO "steps" VALUES(6,'{"n":6,"t":1794743901.529759,"in":[{"event":"ended","job_id":"2","end":"failed","work":0.0}]}');
INSERT INTO "steps" VALUES(7,'{"n":7,"t":1794743902.1966982,"in":[{"event":"arrived","job":{"id":"3","name":"kept","user":"local","roles":[{}]},"held":true}]}');
INSERT INTO "steps" VALUES(8,'{"n":8,"t":1794743902.794581,"in":[{"event":"arrived","job":{"id":"4","roles":[{"device_milli":2000}],"name":"waits","user":"local"},"held":true}]}');
INSERT INTO "steps" VALUES(9,'{"n":9,"t":1794743903.7590475,"in":[{"event":"node-drained","node_id":"n1"}]}');
INSERT INTO "steps" VALUES(10,'{"n":10,"t":1794743904.1782677,"in":[{"event":"node-undrained","node_id":"n1"}]}');
CREATE TABLE tokens (
	id VARCHAR(32) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	tenants TEXT NOT NULL, 
	created_s FLOAT NOT NULL, 
	expires_s FLOAT, 
	revoked_s FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('b6bf4504','5441e07bad7679dc2c4dd2d6a463653d8798314678574ca10b6290cb36e33ce9','ada','member','["nlp"]',1.79474390329379057881e+09,NULL,NULL);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_by_name ON jobs (name, seq);
CREATE INDEX jobs_by_tenant ON jobs (tenant, seq);
COMMIT;
