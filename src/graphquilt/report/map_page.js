// A page that is only the map.
"use strict";
Page.byId("title").textContent = Page.data.title;
Page.byId("lead").textContent = Page.data.lead;
scatter(Page.byId("map"), Page.data.map);
